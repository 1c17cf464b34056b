// The one shape of every projection in the layer: linear, modulated by the conditioner, split into heads.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "fem/mixer.h"

namespace fem {

inline at::Tensor linear(const at::Tensor& x, const LinearWeights& weights) {
  return at::linear(x, weights.weight, weights.bias);
}

// x [B, T, D] -> [B, T, H, *]; factor = 1 + its slice of the conditioner's output, undefined without conditioner.
inline at::Tensor project(const at::Tensor& x, const LinearWeights& weights, const at::Tensor& factor, int64_t heads) {
  const at::Tensor y = linear(x, weights);
  return (factor.defined() ? y * factor : y).unflatten(-1, {heads, -1});
}

inline void declare_linear(std::vector<ParameterSpec>& specs, const std::string& name, int64_t in, int64_t out,
                           bool bias) {
  specs.push_back({name + ".weight", {out, in}, ParameterSpec::Init::kNormal, 0.02});
  if (bias) specs.push_back({name + ".bias", {out}, ParameterSpec::Init::kConstant, 0.0});
}

}  // namespace fem
