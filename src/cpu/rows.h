#pragma once

#include <cstdint>

namespace fem::cpu {

// A tensor [B, T, H, width] with unit element stride, as kernels see it; strides in elements.
struct Rows {
  const void* data;
  int64_t batch, token, head;
};

}  // namespace fem::cpu
