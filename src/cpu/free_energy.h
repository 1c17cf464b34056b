// From the sums S = sum_i s(i) [v, e^{beta v}, 1] over a prior's unnormalised weights s to the read, and back.
// Where S_1 = 0 nothing is visible: the read is 0 and has no gradient. NaN stays.
#pragma once

#include "cpu/vec.h"

namespace fem::cpu {
namespace {

struct Sums {
  Floats one, value, energy;
};

inline Floats unless_empty(Floats one, Floats x) { return select(one == 0.0f, Floats{}, x); }

inline Floats mean_of(const Sums& s) { return unless_empty(s.one, s.value / s.one); }
inline Floats free_energy_of(const Sums& s, Floats beta) { return unless_empty(s.one, log(s.energy / s.one) / beta); }
inline Floats log_normalizer_of(const Sums& s) { return select(s.one == 0.0f, splat(-kInfinity), log(s.one)); }

// Gradients of the sums from those of mean, free energy and log-normaliser.
inline Sums gradient_of_sums(const Sums& s, Floats beta, Floats dmean, Floats dfree, Floats dlog) {
  const Floats inverse = unless_empty(s.one, 1.0f / s.one), scaled = dfree / beta;
  return {(dlog - dmean * mean_of(s) - scaled) * inverse, dmean * inverse, unless_empty(s.one, scaled / s.energy)};
}

}  // namespace
}  // namespace fem::cpu
