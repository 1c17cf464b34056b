// The registered operator fem::gated_scan and its gradient, as C++ signatures.
#pragma once

#include "fem/ops/gated_scan.h"
#include "ops/operator.h"

namespace fem {

constexpr double kScanNormEps = 1e-5, kScanNormFloor = 1e-12;  // of LayerNorm, of the gate's l2 norm

// Added to the gate before it is normalised; the formula with SiLU has no such term.
constexpr double scan_gate_eps(bool silu) { return silu ? 0 : 1e-8; }

// (units, h)
using GatedScanOp = Tensors2(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                             const at::Tensor& norm_weight, const OptionalTensor& norm_bias,
                             const OptionalTensor& initial, const OptionalTensor& absent, const OptionalTensor& restart,
                             bool reverse, bool silu);

// Gradients of (u, decay_logit, gate_logit, norm_weight, norm_bias, initial); those of absent inputs have no elements.
using GatedScanBackwardOp = Tensors6(const at::Tensor& grad_units, const OptionalTensor& grad_h,
                                     const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                                     const at::Tensor& norm_weight, const OptionalTensor& norm_bias,
                                     const OptionalTensor& initial, const OptionalTensor& absent,
                                     const OptionalTensor& restart, bool reverse, bool silu, const at::Tensor& h);

GatedScanOp call_gated_scan;                   // through the dispatcher
GatedScanBackwardOp call_gated_scan_backward;  // through the dispatcher
GatedScanOp gated_scan_cpu;                    // kernels, float32 and bfloat16 (cpu/launch.cpp)
GatedScanBackwardOp gated_scan_backward_cpu;
GatedScanOp gated_scan_by_definition;     // plain ATen, differentiable
GatedScanBackwardOp gated_scan_gradient;  // plain ATen, differentiable

}  // namespace fem
