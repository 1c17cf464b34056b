// The registered operator fem::modulate and its gradient, as C++ signatures.
#pragma once

#include "fem/ops/modulate.h"
#include "ops/operator.h"

namespace fem {

using ModulateOp = at::Tensor(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
                              const OptionalTensor& positions, const OptionalTensor& frequency,
                              std::optional<double> floor, const OptionalTensor& limit, bool added, bool halves);

// Gradients of (x, hidden, weight, limit); those of absent inputs have no elements.
using ModulateBackwardOp = Tensors4(const at::Tensor& grad, const at::Tensor& x, const OptionalTensor& hidden,
                                    const OptionalTensor& weight, const OptionalTensor& positions,
                                    const OptionalTensor& frequency, std::optional<double> floor,
                                    const OptionalTensor& limit, bool added, bool halves);

ModulateOp call_modulate;                   // through the dispatcher
ModulateBackwardOp call_modulate_backward;  // through the dispatcher
ModulateOp modulate_cpu;                    // kernels, float32 and bfloat16 (cpu/launch.cpp)
ModulateBackwardOp modulate_backward_cpu;
ModulateOp modulate_by_definition;     // plain ATen (reference.cpp)
ModulateBackwardOp modulate_gradient;  // plain ATen, differentiable

}  // namespace fem
