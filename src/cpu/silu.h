// silu(x) = x sigmoid(x) and its slope.
#pragma once

#include "cpu/vec.h"

namespace fem::cpu {
namespace {

struct Silu {
  Floats value, slope;
};

inline Silu silu(Floats x) {
  // s and 1 - s from e^-|x|: a difference from 1 would lose the digits that a large x multiplies.
  const Floats e = exp(select(x < 0.0f, x, -x)), more = 1.0f / (1.0f + e), less = e * more;
  const Floats s = select(x < 0.0f, less, more), rest = select(x < 0.0f, more, less);
  return {x * s, s * (1.0f + x * rest)};
}

}  // namespace
}  // namespace fem::cpu
