// Several linear layers of one input.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fem {

// y_i = x weights_i^T + biases_i: x [..., D], weights_i [N_i, D], biases_i [N_i], or no biases at all.
// One call for all of them: x is read once, and the gradient of x is one sum instead of one tensor a layer.
// On the CPU in float32, and in bfloat16 where the processor has no instructions for it, own kernels compute it; they
// differ from torch's by rounding.
std::vector<at::Tensor> project(const at::Tensor& x, at::TensorList weights, at::TensorList biases = {});

}  // namespace fem
