// The one shape of every projection in the layer: linear, modulated by the conditioner, split into heads.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "fem/mixer.h"
#include "fem/ops/modulate.h"

namespace fem {

inline at::Tensor linear(const at::Tensor& x, const LinearWeights& weights) {
  return at::linear(x, weights.weight, weights.bias);
}

// x [B, T, D] -> [B, T, H, *]
inline at::Tensor project(const at::Tensor& x, const LinearWeights& weights, int64_t heads,
                          const Modulation& modulation = {}, const AfterModulation& after = {}) {
  const at::Tensor y = linear(x, weights).unflatten(-1, {heads, -1});
  const bool as_it_is = !modulation.defined() && !after.table && !after.limit;
  return as_it_is ? y : modulate(y, modulation, after);
}

inline void declare_linear(std::vector<ParameterSpec>& specs, const std::string& name, int64_t in, int64_t out,
                           bool bias) {
  specs.push_back({name + ".weight", {out, in}, ParameterSpec::Init::kNormal, 0.02});
  if (bias) specs.push_back({name + ".bias", {out}, ParameterSpec::Init::kConstant, 0.0});
}

// The same with a bias that starts at the given values.
inline void declare_linear(std::vector<ParameterSpec>& specs, const std::string& name, int64_t in,
                           const std::vector<double>& start, bool bias) {
  declare_linear(specs, name, in, static_cast<int64_t>(start.size()), bias);
  if (bias) specs.back() = {name + ".bias", specs.back().shape, ParameterSpec::Init::kValues, 0.0, start};
}

}  // namespace fem
