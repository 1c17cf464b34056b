#pragma once

#include <string>
#include <vector>

#include "models/residual.h"
#include "models/token_mixer.h"

namespace fem {

// RMSNorm, token mixer, residual rule; RMSNorm, MLP, plus. Bound to its weights.
class Block {
 public:
  Block(const BackboneOptions& options, int64_t layer, const std::vector<at::Tensor>& weights);

  MixerInput asked(const Stream& stream) const;  // what the mixer is asked with, normed
  Stream mix(const Stream& stream, const Batch& batch, MixerState* state, bool training) const;
  Stream mlp(const Stream& stream, bool training) const;

 private:
  at::Tensor hidden(const at::Tensor& x) const;

  double norm_eps_, dropout_;
  const Residual& residual_;
  Mix mix_;
  std::vector<at::Tensor> coefficients_;                 // of the residual rule
  at::Tensor mixer_norm_, mlp_norm_, gate_, up_, down_;  // gate_ is undefined without one
};

// In the order of a block's weights.
std::vector<ParameterSpec> block_parameters(const BackboneOptions& options, int64_t layer);

// A linear layer [out, in] and the weight of a norm, as they start.
ParameterSpec matrix_spec(std::string name, int64_t out, int64_t in);
ParameterSpec norm_spec(std::string name, int64_t width);

}  // namespace fem
