// The registered operator fem::ssm_scan and its gradient, as C++ signatures.
#pragma once

#include <array>

#include "fem/ops/ssm_read.h"
#include "ops/operator.h"
#include "ops/ssm_read/cpu/kernels.h"

namespace fem {

// (mean, free_energy, log_normalizer, state, checkpoints) of the causal scan; free_energy has no elements without beta.
// Of bfloat16 inputs all but mean are float32 (recurrent.h).
using SsmReadOutputs = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using SsmScanOp = SsmReadOutputs(const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                                 const at::Tensor& A, const at::Tensor& B, const at::Tensor& C, const at::Tensor& D,
                                 const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                 const OptionalTensor& initial, bool strict, bool delayed);

// Gradients of (value, beta, delta, A, B, C, D, initial); no elements where the input is absent.
using SsmReadGradients =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using SsmScanBackwardOp = SsmReadGradients(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                           const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                           const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                                           const at::Tensor& A, const at::Tensor& B, const at::Tensor& C,
                                           const at::Tensor& D, const OptionalTensor& key_mask,
                                           const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict,
                                           bool delayed, const at::Tensor& checkpoints);

SsmScanOp call_ssm_scan;                   // through the dispatcher
SsmScanBackwardOp call_ssm_scan_backward;  // through the dispatcher

// What both are given, gathered.
struct SsmInputs {
  at::Tensor value;
  OptionalTensor beta;
  at::Tensor delta, A, B, C, D;
  OptionalTensor key_mask, cu_seqlens, initial;
  bool strict;   // i < t instead of i <= t: no D u, and the state as it decays into the token
  bool delayed;  // the state before the token, whatever it is: Ssm::delayed

  int64_t streams() const { return beta ? 3 : 2; }  // 1, v, exp(beta v)
};

struct SsmGrads {
  OptionalTensor mean, free_energy, log_normalizer, state;
};

// States at the checkpoints of the kernels, one per chunk and room for one more per sequence.
inline std::array<c10::SymInt, 4> ssm_checkpoint_shape(const SsmInputs& in) {
  using namespace ssm_kernels;
  const auto batch = in.value.sym_size(0), tokens = in.value.sym_size(1);
  const auto sequences = in.cu_seqlens ? in.cu_seqlens->sym_size(0) - 1 : batch;
  const auto lines = (in.value.sym_size(2) * in.value.sym_size(3) + kChannels - 1) / kChannels;
  return {batch * (tokens / kChunk) + sequences, in.streams(), in.A.sym_size(2), lines * kChannels};
}

SsmReadOutputs ssm_read_cpu(const SsmInputs& in);  // kernels, float32 and bfloat16 (cpu/launch.cpp)
SsmReadGradients ssm_read_backward_cpu(const SsmGrads& grads, const SsmInputs& in, const at::Tensor& checkpoints);

// The definition in plain ATen (reference.cpp): any device and dtype; its gradient is differentiable again.
SsmReadOutputs ssm_scan_definition(const SsmInputs& in);
SsmScanOp ssm_scan_by_definition;
SsmReadGradients ssm_scan_definition_gradient(const SsmGrads& grads, const SsmInputs& in);

// The definition on chunks side by side, and its gradient: any device, linear memory (any_device.cpp).
SsmReadOutputs ssm_scan_in_chunks(const SsmInputs& in);
SsmReadGradients ssm_scan_gradient_in_chunks(const SsmGrads& grads, const SsmInputs& in);

}  // namespace fem
