// Learned decays: how fast a head or a channel forgets.
#pragma once

#include <cmath>
#include <vector>

#include "priors/dialect.h"
#include "priors/part.h"

namespace fem {

// count values from first to last in equal ratios.
inline std::vector<double> geometric(double first, double last, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(first * std::pow(last / first, count > 1 ? static_cast<double>(i) / (count - 1) : 0.5));
  return values;
}

// x with softplus(x) = y > 0
inline double inverse_softplus(double y) { return y + std::log(-std::expm1(-y)); }

inline constexpr PartName kDecay{"W_decay"};

// One decay for each of count heads or channels. With spread starts exp(-softplus(bias)) halves in 8 ... 1024 tokens,
// from syllables to paragraphs.
inline Part decay_part(const MixerOptions& options, int64_t count) {
  Start biases = 0.0;
  if (rules_of(options.dialect).spread_starts)
    biases = [count] {
      std::vector<double> values = geometric(8, 1024, count);
      for (double& value : values) value = inverse_softplus(std::log(2.0) / value);
      return values;
    };
  return projection(kDecay, options, count, Conditioned::kAfterGates, biases);
}

}  // namespace fem
