// The registered operator fem::channel_scan and its gradient, as C++ signatures.
#pragma once

#include <vector>

#include "fem/ops/channel_read.h"
#include "ops/operator.h"

namespace fem {

// (mean, free_energy, log_normalizer, state, checkpoints) of the causal scan; free_energy has no elements without beta.
// Of bfloat16 inputs all but mean are float32 (recurrent.h).
using ChannelScanOp = Tensors5(const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_weight,
                               const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                               const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict);

// Gradients of (value, beta, log_weight, log_decay, initial), without elements for those that are not given.
using ChannelScanBackwardOp = Tensors5(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                       const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                       const at::Tensor& value, const OptionalTensor& beta,
                                       const OptionalTensor& log_weight, const OptionalTensor& log_decay,
                                       const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                       const OptionalTensor& initial, const at::Tensor& checkpoints, bool strict);

// The same arguments as values.
struct ChannelInputs {
  at::Tensor value;
  OptionalTensor beta, log_weight, log_decay, key_mask, cu_seqlens, initial;
  bool strict;

  int64_t streams() const { return beta ? 3 : 2; }  // of sums: 1, v, exp(beta v)
};
struct ChannelGradients {
  OptionalTensor mean, free_energy, log_normalizer, state;
};

ChannelScanOp call_channel_scan;                   // through the dispatcher
ChannelScanBackwardOp call_channel_scan_backward;  // through the dispatcher

// Kernels, float32 and bfloat16 (cpu/launch.cpp).
Tensors5 channel_read_cpu(const ChannelInputs& in);
Tensors5 channel_read_backward_cpu(const ChannelGradients& grads, const ChannelInputs& in,
                                   const at::Tensor& checkpoints);

// Token by token in plain ATen, and its gradient by autograd: any device and dtype, differentiable again.
RecurrentRead channel_scan_definition(const ChannelInputs& in);
ChannelScanOp channel_scan_by_definition;
Tensors5 channel_scan_gradient(const ChannelGradients& grads, const ChannelInputs& in);

// The definition on chunks side by side, and its gradient: any device, linear memory (any_device.cpp).
RecurrentRead channel_scan_in_chunks(const ChannelInputs& in);
Tensors5 channel_scan_gradient_in_chunks(const ChannelGradients& grads, const ChannelInputs& in);

// Of what the backward kernels start from: the state before every kChunk tokens of a sequence.
std::vector<c10::SymInt> checkpoint_shape(const ChannelInputs& in);

}  // namespace fem
