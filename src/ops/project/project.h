// The registered operator fem::project and its gradient, as C++ signatures.
#pragma once

#include "fem/ops/project.h"
#include "ops/operator.h"

namespace fem {

using TensorVector = std::vector<at::Tensor>;
using ProjectOp = TensorVector(const at::Tensor& x, at::TensorList weights, at::TensorList biases);

// Gradients of (x, weights, biases): that of x has no elements unless input, those of biases are none unless biased.
using ProjectGradients = std::tuple<at::Tensor, TensorVector, TensorVector>;
using ProjectBackwardOp = ProjectGradients(at::TensorList grads, const at::Tensor& x, at::TensorList weights,
                                           bool input, bool biased);

ProjectOp call_project;                   // through the dispatcher
ProjectBackwardOp call_project_backward;  // through the dispatcher
ProjectOp project_cpu;                    // kernels, float32 and bfloat16 (cpu/launch.cpp)
ProjectBackwardOp project_backward_cpu;
ProjectOp project_by_definition;     // plain ATen
ProjectBackwardOp project_gradient;  // plain ATen, differentiable

}  // namespace fem
