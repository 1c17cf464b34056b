#include "bench/opponent.h"

#include <ATen/ATen.h>

#include "fem/ops/rotary.h"

namespace fem::bench {
namespace {

constexpr int64_t kRoom = 256;

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool causal) {
  return at::scaled_dot_product_attention(query, key, value, {}, 0.0, causal).transpose(1, 2).flatten(2);
}

}  // namespace

AttentionLayer::AttentionLayer(const Shape& shape) : shape_(shape) {
  const at::Tensor positions = at::arange(shape.length + kRoom);
  const RotaryTable table = rotary_table(rotation_of(positions, shape.dim / shape.heads), at::empty({0}));
  cosine_ = table.cosine.unsqueeze(1);
  sine_ = table.sine.unsqueeze(1);
  for (int i = 0; i < 4; ++i) {
    parameters_.push_back((at::randn({shape.dim, shape.dim}) * 0.02).set_requires_grad(true));
    parameters_.push_back(at::zeros({shape.dim}).set_requires_grad(true));
  }
}

at::Tensor AttentionLayer::forward(const at::Tensor& x) const {
  const at::Tensor query = rotated(by_head(linear(0, x)), 0), key = rotated(by_head(linear(1, x)), 0);
  const at::Tensor value = by_head(linear(2, x));
  return linear(3, attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), /*causal=*/true));
}

at::Tensor AttentionLayer::linear(int index, const at::Tensor& x) const {
  return at::linear(x, parameters_[2 * index], parameters_[2 * index + 1]);
}

at::Tensor AttentionLayer::by_head(const at::Tensor& rows) const { return rows.unflatten(-1, {shape_.heads, -1}); }

// In plain torch, as such layers have it.
at::Tensor AttentionLayer::rotated(const at::Tensor& x, int64_t position) const {
  const at::Tensor cosine = cosine_.narrow(0, position, x.size(1)), sine = sine_.narrow(0, position, x.size(1));
  return x * cosine + x.unflatten(-1, {-1, 2}).flip(-1).flatten(-2) * sine;
}

DecodingAttentionLayer::DecodingAttentionLayer(const Shape& shape) : AttentionLayer(shape), tokens_(shape.length) {
  key_ = at::randn({shape.batch, shape.heads, shape.length + kRoom, shape.dim / shape.heads});
  value_ = at::randn_like(key_);
}

at::Tensor DecodingAttentionLayer::step(const at::Tensor& x) {
  if (tokens_ == key_.size(2)) tokens_ -= kRoom;
  const at::Tensor query = rotated(by_head(linear(0, x)), tokens_).transpose(1, 2);
  key_.narrow(2, tokens_, 1).copy_(rotated(by_head(linear(1, x)), tokens_).transpose(1, 2));
  value_.narrow(2, tokens_, 1).copy_(by_head(linear(2, x)).transpose(1, 2));
  ++tokens_;
  return linear(3, attend(query, key_.narrow(2, 0, tokens_), value_.narrow(2, 0, tokens_), /*causal=*/false));
}

int64_t DecodingAttentionLayer::cache_bytes() const {
  return 2 * key_.narrow(2, 0, key_.size(2) - kRoom).numel() * static_cast<int64_t>(key_.element_size());
}

MixerOptions equal_options(PriorType prior, const Shape& shape, bool conditioner) {
  MixerOptions options;
  options.n_embd = shape.dim;
  options.n_head = shape.heads;
  options.prior_type = prior;
  options.use_conv = conditioner;
  if (prior == PriorType::kRnnSoftmax) {  // six projections of width E
    options.fem_ratio = 2.0 / 3;
    options.p_t_to_fem_ratio = 2.0;
  } else if (prior == PriorType::kRnnDecay || prior == PriorType::kMamba) {  // five
    options.fem_ratio = 0.8;
  }
  return options;
}

}  // namespace fem::bench
