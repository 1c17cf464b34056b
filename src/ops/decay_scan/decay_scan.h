// The registered operator fem::decay_scan and its gradient, as C++ signatures.
#pragma once

#include "fem/ops/decay_scan.h"
#include "ops/operator.h"

namespace fem {

using DecayScanOp = at::Tensor(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial);

// Gradients of (u, log_decay, initial); the last has no elements without initial.
using DecayScanBackwardOp = Tensors3(const at::Tensor& grad, const at::Tensor& log_decay, const OptionalTensor& initial,
                                     const at::Tensor& h);

DecayScanOp call_decay_scan;                   // through the dispatcher
DecayScanBackwardOp call_decay_scan_backward;  // through the dispatcher
DecayScanOp decay_scan_cpu;                    // kernels, float32 and bfloat16 (cpu/launch.cpp)
DecayScanBackwardOp decay_scan_backward_cpu;
DecayScanOp decay_scan_by_definition;  // plain ATen, differentiable

// The gradient in terms of the scan itself, run from the end: for any device and dtype, and for second derivatives.
Tensors3 decay_scan_gradient(DecayScanOp& scan, const at::Tensor& grad, const at::Tensor& log_decay,
                             const OptionalTensor& initial, const at::Tensor& h);

}  // namespace fem
