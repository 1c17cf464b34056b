// The l2-normalised gate of one row: sqrt(width) raw / max(|raw|, floor) with raw = softplus(logit) + eps.
#pragma once

#include <cmath>

#include "cpu/vec.h"

namespace fem::cpu {
namespace {

// raw of every channel into scratch; returns 1 / max(|raw|, floor).
template <typename Scalar>
inline float raw_gate(const Scalar* logit, int64_t width, float eps, float floor, float* raw) {
  Floats square{};
  for_vectors(width, [&](int64_t c, auto&& get, auto&& put) {
    put(raw + c, softplus(get(logit + c)) + eps);
    square += get(raw + c) * get(raw + c);
  });
  const float norm = std::sqrt(sum(square));
  return 1 / (norm > floor ? norm : floor);
}

}  // namespace
}  // namespace fem::cpu
