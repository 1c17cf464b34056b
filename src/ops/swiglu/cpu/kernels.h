// What the swiglu kernels are given: contiguous elements, shapes do not matter.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::swiglu_kernels {

struct Swiglu {
  bool bfloat16;  // else float32
  int64_t elements;
  const void *gate, *up;
};

struct SwigluForward : Swiglu {
  void* out;
};

struct SwigluBackward : Swiglu {
  const void* grad;
  void *grad_gate, *grad_up;
};

// Whole vectors and cache lines on every instruction set: only the tensor's own end is ever a part of a vector, however
// many threads share the work.
constexpr int64_t kBlock = 64;

// Items are blocks of kBlock elements.
FEM_DECLARE_KERNEL(void, forward, const SwigluForward&, int64_t begin, int64_t end)
FEM_DECLARE_KERNEL(void, backward, const SwigluBackward&, int64_t begin, int64_t end)

}  // namespace fem::swiglu_kernels
