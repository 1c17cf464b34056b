// What the rms_norm kernels are given: contiguous rows of D elements.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::norm_kernels {

struct Norm {
  bool bfloat16;  // else float32
  int64_t width;
  float eps;
  const void* x;
  const float* scale;
};

struct NormForward : Norm {
  void* y;
};

struct NormBackward : Norm {
  const void* grad;
  void* grad_x;
};

// Items are rows. grad_scale [D] is what the caller sums up; its memory is the caller's own.
FEM_DECLARE_KERNEL(void, norm, const NormForward&, int64_t begin, int64_t end)
FEM_DECLARE_KERNEL(void, norm_backward, const NormBackward&, float* grad_scale, int64_t begin, int64_t end)

}  // namespace fem::norm_kernels
