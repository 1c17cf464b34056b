#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

// x / sqrt(mean(x^2) + eps) * scale over the last dimension: x [..., D], scale [D]. Gradients flow to both.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& scale, double eps = 1e-5);

at::Tensor rms_norm_definition(const at::Tensor& x, const at::Tensor& scale, double eps = 1e-5);

}  // namespace fem
