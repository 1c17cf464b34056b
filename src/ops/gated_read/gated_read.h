// The registered operator fem::gated_read and its gradient, as C++ signatures.
#pragma once

#include "fem/ops/gated_read.h"
#include "ops/operator.h"

namespace fem {

using GatedReadOp = at::Tensor(const at::Tensor& mean, const OptionalTensor& free_energy,
                               const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double eps);

// Gradients of (mean, free_energy, temperature_logit, gate_logit); no elements where the input is absent.
using GatedReadBackwardOp = Tensors4(const at::Tensor& grad, const at::Tensor& mean, const OptionalTensor& free_energy,
                                     const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit,
                                     double eps);

GatedReadOp call_gated_read;                   // through the dispatcher
GatedReadBackwardOp call_gated_read_backward;  // through the dispatcher
GatedReadOp gated_read_cpu;                    // kernels, float32 and bfloat16 (cpu/launch.cpp)
GatedReadBackwardOp gated_read_backward_cpu;
GatedReadOp gated_read_by_definition;     // plain ATen, differentiable
GatedReadBackwardOp gated_read_gradient;  // written out in ATen: any device and dtype, differentiable again

constexpr double kNormFloor = 1e-5;

}  // namespace fem
