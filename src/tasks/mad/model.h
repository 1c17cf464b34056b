#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "fem/mixer.h"
#include "models/backbone.h"
#include "tasks/mad/options.h"

namespace fem {

// Embedding, backbone, and a head with a bias of its own weights. For compression a two-layer decoder stands between
// the blocks and their norm: it reads, for every place, what the blocks made of the last token plus the place's sines
// and cosines.
class MadModel {
 public:
  MadModel(const MadOptions& options, int64_t seed);  // of the initial parameters

  // tokens [B, T] int64 -> logits [B, T, V]
  at::Tensor forward(const at::Tensor& tokens, bool training) const;
  Trace trace(const at::Tensor& tokens) const;

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }  // in the order of specs

 private:
  at::Tensor run(const at::Tensor& tokens, bool training, Trace* trace) const;
  at::Tensor decode(const at::Tensor& encoded) const;

  const BackboneOptions options_;
  std::vector<ParameterSpec> specs_;
  std::vector<at::Tensor> parameters_;
  at::Tensor embedding_, head_, head_bias_;
  struct Layer {
    at::Tensor norm, weight, bias;
  };
  std::vector<Layer> decoder_;
  std::unique_ptr<const BoundBackbone> backbone_;
};

std::vector<ParameterSpec> mad_parameters(const MadOptions& options);

// Row t has the sines, then the cosines, of t times D/2 frequencies from 1 to 1e-4: [T, D].
at::Tensor sine_positions(int64_t tokens, int64_t width);

}  // namespace fem
