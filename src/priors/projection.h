// The one shape of every projection in the layer: linear, split into heads, modulated by the conditioner.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "fem/mixer.h"
#include "fem/ops/modulate.h"
#include "fem/ops/project.h"

namespace fem {

// x through every layer: [B, T, D] -> [B, T, *] each. All layers have a bias, or none has.
inline std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<LinearWeights>& layers) {
  std::vector<at::Tensor> weights, biases;
  for (const LinearWeights& layer : layers) {
    weights.push_back(layer.weight);
    if (layer.bias.defined()) biases.push_back(layer.bias);
  }
  return project(x, weights, biases);
}

// A projection [B, T, *] -> [B, T, H, *]
inline at::Tensor by_head(const at::Tensor& projected, int64_t heads, const Modulation& modulation = {},
                          const AfterModulation& after = {}) {
  const at::Tensor y = projected.unflatten(-1, {heads, -1});
  const bool as_it_is = !modulation.defined() && !after.rotation && !after.limit;
  return as_it_is ? y : modulate(y, modulation, after);
}

constexpr double kLinearDeviation = 0.02;  // of initial weights

inline void declare_linear(std::vector<ParameterSpec>& specs, const std::string& name, int64_t in, int64_t out,
                           bool bias) {
  specs.push_back({name + ".weight", {out, in}, ParameterSpec::Init::kNormal, kLinearDeviation});
  if (bias) specs.push_back({name + ".bias", {out}, ParameterSpec::Init::kConstant, 0.0});
}

// The same with a bias that starts at the given values.
inline void declare_linear(std::vector<ParameterSpec>& specs, const std::string& name, int64_t in,
                           const std::vector<double>& start, bool bias) {
  declare_linear(specs, name, in, static_cast<int64_t>(start.size()), bias);
  if (bias) specs.back() = {name + ".bias", specs.back().shape, ParameterSpec::Init::kValues, 0.0, start};
}

}  // namespace fem
