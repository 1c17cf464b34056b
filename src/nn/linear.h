// Linear layers at work: several of one input in one call, split into heads, modulated by the conditioner.
#pragma once

#include <ATen/ATen.h>

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

// Whether what is made of x is large enough to be computed again in backward instead of kept: 4 MB in float32. Below
// that it costs a tenth of a layer's time (docs/performance_log.md).
inline bool worth_recomputing(const at::Tensor& x) {
  const c10::SymInt size = x.sym_numel();
  return size.is_symbolic() || size.expect_int() >= 1 << 20;
}

// A projection [B, T, *] -> [B, T, H, *]
inline at::Tensor by_head(const at::Tensor& projected, int64_t heads, const Modulation& modulation = {},
                          const AfterModulation& after = {}, bool recompute = false) {
  const at::Tensor y = projected.unflatten(-1, {heads, -1});
  const bool as_it_is = !modulation.defined() && !after.rotation && !after.limit;
  return as_it_is ? y : modulate(y, modulation, after, recompute);
}

}  // namespace fem
