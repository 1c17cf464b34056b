// The layer that a user would pick instead, and mixers as large as it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bench/shapes.h"
#include "fem/options.h"

namespace fem::bench {

// Causal attention of width D: four projections with biases, rotary positions from a table made once, torch's fused
// attention. It has 4 D^2 + 4 D parameters.
class AttentionLayer {
 public:
  explicit AttentionLayer(const Shape& shape);

  at::Tensor forward(const at::Tensor& x) const;  // [B, T, D]
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 protected:
  at::Tensor linear(int index, const at::Tensor& x) const;
  at::Tensor by_head(const at::Tensor& rows) const;
  at::Tensor rotated(const at::Tensor& x, int64_t position) const;

 private:
  Shape shape_;
  at::Tensor cosine_, sine_;
  std::vector<at::Tensor> parameters_;
};

// The same with a cache of keys and values of shape.length random tokens. It has room for some more, and goes back to
// where it began when that is used up: any number of steps can be timed.
class DecodingAttentionLayer : public AttentionLayer {
 public:
  explicit DecodingAttentionLayer(const Shape& shape);

  at::Tensor step(const at::Tensor& x);  // one more token, [B, 1, D]
  int64_t cache_bytes() const;           // of the tokens it began with

 private:
  int64_t tokens_;
  at::Tensor key_, value_;  // [B, H, room, K]
};

// As wide as gives the prior the parameters of the attention layer, up to rounding to whole heads.
MixerOptions equal_options(PriorType prior, const Shape& shape, bool conditioner = true);

}  // namespace fem::bench
