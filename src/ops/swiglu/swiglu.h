// The registered operator fem::swiglu and its gradient, as C++ signatures.
#pragma once

#include "fem/ops/swiglu.h"
#include "ops/operator.h"

namespace fem {

using SwigluOp = at::Tensor(const at::Tensor& gate, const at::Tensor& up);

// Gradients of (gate, up).
using SwigluBackwardOp = Tensors2(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up);

SwigluOp call_swiglu;                   // through the dispatcher
SwigluBackwardOp call_swiglu_backward;  // through the dispatcher
SwigluOp swiglu_cpu;                    // kernels, float32 and bfloat16 (cpu/launch.cpp)
SwigluBackwardOp swiglu_backward_cpu;
SwigluOp swiglu_by_definition;     // plain ATen, differentiable
SwigluBackwardOp swiglu_gradient;  // written out in ATen: any device and dtype, differentiable again

}  // namespace fem
