// The registered operator fem::rms_norm and its gradient, as C++ signatures.
#pragma once

#include "fem/ops/rms_norm.h"
#include "ops/operator.h"

namespace fem {

using RmsNormOp = at::Tensor(const at::Tensor& x, const at::Tensor& scale, double eps);

// Gradients of (x, scale).
using RmsNormBackwardOp = Tensors2(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& scale, double eps);

RmsNormOp call_rms_norm;                   // through the dispatcher
RmsNormBackwardOp call_rms_norm_backward;  // through the dispatcher
RmsNormOp rms_norm_cpu;                    // kernels, float32 and bfloat16 (cpu/launch.cpp)
RmsNormBackwardOp rms_norm_backward_cpu;
RmsNormOp rms_norm_by_definition;     // plain ATen, differentiable
RmsNormBackwardOp rms_norm_gradient;  // plain ATen, differentiable

}  // namespace fem
