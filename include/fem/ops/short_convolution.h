#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace fem {

struct ShortConvolutionOptions {
  std::optional<at::Tensor> initial;  // [B, W - 1, C] the x of the tokens before the first; 0 unless given
  std::optional<at::Tensor> restart;  // [B, T] bool: forgets all that came before (a packed sequence begins)
  bool silu = false;                  // y / (1 + exp(-y)) instead of y
};

// A causal convolution of every channel by itself over a few tokens: x [B, T, C], weight [C, W], W from 2 to 4.
//   y_t = sum_{j=0..W-1} weight_j x_{t-W+1+j}     the last weight is the token's own
// Gradients flow to x, weight and initial. Splitting a sequence and passing the last W - 1 x on is bitwise the same.
at::Tensor short_convolution(const at::Tensor& x, const at::Tensor& weight,
                             const ShortConvolutionOptions& options = {});

at::Tensor short_convolution_definition(const at::Tensor& x, const at::Tensor& weight,
                                        const ShortConvolutionOptions& options = {});

}  // namespace fem
