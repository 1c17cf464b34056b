#pragma once

#include "cpu/vec.h"

namespace fem::cpu {
namespace {

// sum_i a_i b_i, in four sums side by side.
template <typename A, typename B>
inline float dot(const A* a, const B* b, int64_t width) {
  Floats total[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes)
    for (int part = 0; part < 4; ++part) total[part] += load(a + i + part * kLanes) * load(b + i + part * kLanes);
  Floats rest{};
  for_vectors(width - i, [&](int64_t j, auto&& get, auto&&) { rest += get(a + i + j) * get(b + i + j); });
  return sum((total[0] + total[1]) + (total[2] + total[3]) + rest);
}

}  // namespace
}  // namespace fem::cpu
