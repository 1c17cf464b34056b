// What the short_convolution kernels are given.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::short_convolution_kernels {

// All contiguous. initial and restart may be null.
struct Convolution {
  bool bfloat16;  // else float32
  bool silu;
  int64_t batch, tokens, channels, width;
  const void* x;        // [B, T, C]
  const float* weight;  // [W, C]
  const void* initial;  // [B, W - 1, C]
  const bool* restart;  // [B, T]
};

struct ConvolutionForward : Convolution {
  void* y;
};

struct ConvolutionBackward : Convolution {
  const void* grad;
  void* grad_x;
  float* grad_weight;  // [W, C]
  void* grad_initial;  // null if initial is
};

constexpr int64_t kChannels = 16;  // one cache line of float32: the unit of parallel work

// Items are (batch, group of kChannels channels); backward, which sums over the batch, groups alone.
FEM_DECLARE_KERNEL(void, forward, const ConvolutionForward&, int64_t begin, int64_t end)
FEM_DECLARE_KERNEL(void, backward, const ConvolutionBackward&, int64_t begin, int64_t end)

}  // namespace fem::short_convolution_kernels
