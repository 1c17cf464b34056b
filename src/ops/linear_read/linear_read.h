// The registered operator fem::linear_scan and its gradient, as C++ signatures.
#pragma once

#include "fem/ops/linear_read.h"
#include "ops/operator.h"

namespace fem {

// (mean, free_energy, log_normalizer, state, checkpoints); free_energy has no elements without beta. Of bfloat16 inputs
// all but mean are float32: backward and the merging of two directions need F as it was computed (recurrent.h).
// strict: token t reads i < t instead of i <= t.
using LinearScanOp = Tensors5(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const OptionalTensor& beta, const OptionalTensor& log_decay,
                              const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                              const OptionalTensor& initial, bool strict);

// Gradients of (query, key, value, beta, log_decay, initial); those of absent inputs have no elements.
using LinearScanBackwardOp = Tensors6(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                      const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                      const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                      const OptionalTensor& beta, const OptionalTensor& log_decay,
                                      const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                      const OptionalTensor& initial, bool strict, const at::Tensor& mean,
                                      const at::Tensor& free_energy, const at::Tensor& log_normalizer,
                                      const at::Tensor& checkpoints);

LinearScanOp call_linear_scan;                   // through the dispatcher
LinearScanBackwardOp call_linear_scan_backward;  // through the dispatcher
LinearScanOp linear_read_cpu;                    // kernels, float32 and bfloat16 (cpu/launch.cpp)
LinearScanBackwardOp linear_read_backward_cpu;
LinearScanOp linear_scan_by_definition;  // plain ATen, differentiable
LinearScanOp linear_scan_in_chunks;      // plain ATen, in batched products, on every device (any_device.cpp)
LinearScanBackwardOp linear_scan_backward_in_chunks;

// The definition of one scan and its gradient in plain ATen (reference.cpp).
RecurrentRead linear_scan_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                     const OptionalTensor& beta, const OptionalTensor& log_decay,
                                     const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                     const OptionalTensor& initial, bool strict);
LinearScanBackwardOp linear_read_definition_backward;

// Columns of the state: v, exp(beta v) and 1.
inline c10::SymInt linear_state_width(const at::Tensor& value, const OptionalTensor& beta) {
  return value.sym_size(3) * (beta ? 2 : 1) + 1;
}

// A state is kept for backward where the position in the row is a multiple of this.
constexpr int64_t kLinearCheckpointTokens = 256;

// [B, (T - 1) / kLinearCheckpointTokens, H, K, state width]; the definition needs none and leaves it as it is.
at::Tensor empty_linear_checkpoints(const at::Tensor& query, const at::Tensor& value, const OptionalTensor& beta);

}  // namespace fem
