#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "fem/mixer.h"

namespace fem {

// Causal attention as one knows it: four projections, rotary positions, torch's fused attention kernel. Of the
// mixer options it takes n_embd, n_head, bias, use_rope and rope_theta; check_attention refuses any other.
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const MixerOptions& options);

  at::Tensor forward(const at::Tensor& x, const Batch& batch, MixerState* state);

 private:
  at::Tensor attended(const at::Tensor& x, const Batch& batch, MixerState* state) const;
  at::Tensor packed(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const std::vector<int64_t>& borders) const;
  at::Tensor padded(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const Batch& batch,
                    MixerState* state) const;

  const MixerOptions options_;
  LinearWeights query_, key_, value_, output_;
};

void check_attention(const MixerOptions& options);
std::vector<ParameterSpec> attention_parameters(const MixerOptions& options);

}  // namespace fem
