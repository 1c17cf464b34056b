// The registered operator fem::softmax_read and its gradient, as C++ signatures.
#pragma once

#include "fem/ops/softmax_read.h"
#include "ops/operator.h"
#include "ops/softmax_read/reference.h"

namespace fem {

// (mean, free_energy, log_normalizer); free_energy has no elements without beta. Of bfloat16 inputs the last two are
// float32: backward needs F as it was computed, and softmax_read() rounds what users see.
using SoftmaxReadOp = Tensors3(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                               const OptionalTensor& beta, std::optional<double> scale, bool causal,
                               std::optional<int64_t> window, const OptionalTensor& key_mask,
                               const OptionalTensor& cu_seqlens);

// Gradients of (query, key, value, beta); the last has no elements without beta.
using SoftmaxReadBackwardOp = Tensors4(const at::Tensor& grad_mean, const at::Tensor& grad_free_energy,
                                       const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                       const OptionalTensor& beta, const at::Tensor& mean,
                                       const at::Tensor& free_energy, const at::Tensor& log_normalizer,
                                       std::optional<double> scale, bool causal, std::optional<int64_t> window,
                                       const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens);

SoftmaxReadOp call_softmax_read;                   // through the dispatcher
SoftmaxReadBackwardOp call_softmax_read_backward;  // through the dispatcher
SoftmaxReadOp softmax_read_cpu;                    // fused kernels, float32 and bfloat16 (cpu/launch.cpp)
SoftmaxReadBackwardOp softmax_read_backward_cpu;
// The same into tensors that are there, whatever their strides but for an element's, which is 1; what to.beta holds is
// left without beta. The query is let go as soon as it was read.
void softmax_read_backward_into(const SoftmaxReadGradients& to, const at::Tensor& grad_mean,
                                const at::Tensor& grad_free_energy, at::Tensor query, const at::Tensor& key,
                                const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& mean,
                                const at::Tensor& free_energy, const at::Tensor& log_normalizer,
                                std::optional<double> scale, bool causal, std::optional<int64_t> window,
                                const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens);
SoftmaxReadOp softmax_read_by_definition;  // plain ATen, differentiable
// Torch's attention in blocks of queries, on every device (any_device.cpp); as a registered operator
// fem::attention_read.
SoftmaxReadOp softmax_read_by_attention, call_attention_read;
SoftmaxReadBackwardOp softmax_read_backward_by_attention, call_attention_read_backward;

}  // namespace fem
