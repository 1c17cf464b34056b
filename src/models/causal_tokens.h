// The tokens of a batch as a mixer sees them that is causal by nature.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "fem/mixer.h"
#include "priors/memory.h"

namespace fem {

// Masked tokens do not exist: the real ones of each row are moved to its front, in their order, and a causal mixer lets
// none of them see what is behind. Packed sequences stay in their row, and each begins with a restart.
class CausalTokens {
 public:
  CausalTokens(const at::Tensor& x, const Batch& batch);

  // Both [B, T, C]; x and y themselves if nothing is masked.
  at::Tensor real_first(const at::Tensor& x) const;
  at::Tensor as_they_were(const at::Tensor& y) const;

  // Of the moved tokens.
  std::optional<at::Tensor> real;     // [B, T] bool, if there is a mask
  std::optional<at::Tensor> restart;  // [1, T] bool, if there are packed sequences

 private:
  at::Tensor order_, back_;  // [B, T]; undefined without mask
};

// short_convolution of x [B, T, C], after the tokens of a state, which then remembers these.
at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const CausalTokens& tokens, bool silu,
                    MixerState* state);

// What the state remembers of that: the last x.
MemoryPart convolution_memory(int64_t channels, int64_t width, at::ScalarType dtype);

}  // namespace fem
