#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

// silu(gate) * up, element by element, silu(x) = x / (1 + exp(-x)): what stands between the projections of a gated
// feed-forward layer. Both of one shape, any number of dimensions; float32, bfloat16 (float32 inside) or float64.
// One pass over memory, one more for both gradients; nothing but gate and up is kept.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

at::Tensor swiglu_definition(const at::Tensor& gate, const at::Tensor& up);

}  // namespace fem
