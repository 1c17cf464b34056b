// The differentiable per-channel log-sum-exp attention read.
#pragma once

#include <cstdint>
#include <optional>

#include "fem/ops/read.h"

namespace fem {

struct SoftmaxRead : Read {
  at::Tensor log_normalizer;  // [B, Tq, H] log sum_i exp(score_ti); -inf where nothing is visible; not differentiable
};

struct SoftmaxReadOptions {
  std::optional<double> scale;           // of the scores; 1/sqrt(K) unless given
  bool causal = true;                    // query t is position Tk - Tq + t and sees no later key
  std::optional<int64_t> window;         // sees only keys closer than this: itself and window - 1 before (and after)
  std::optional<at::Tensor> key_mask;    // [B, Tk] bool, true = a real token
  std::optional<at::Tensor> cu_seqlens;  // [n + 1] int, borders 0 ... T of sequences packed in one row (B = 1)
  std::optional<at::Tensor> bias;        // [H or 1, Tq, Tk] added to the scores, with a gradient
  std::optional<at::Tensor> slopes;      // [H] ALiBi: slope times the distance of query and key is taken off the scores
};

// p_t(i) = softmax_i(scale q_t.k_i + b_ti) over what t may see, then the mean and the free energy of v under p, per
// channel.
//   query [B, Tq, H, K]   key [B, Tk, H, K]   value [B, Tk, H, V]   beta [H, V], positive
// Without beta only the mean is computed: plain attention. A query that sees nothing reads 0, with zero gradients.
// Gradients flow to query, key, value, beta and bias; nothing of size Tq x Tk is kept.
// float32 and bfloat16 (accumulated in float32) run fused kernels and need |beta v| <= 40, see clip_value;
// float64 runs the definition, other devices torch's attention: see docs/numerics.md.
SoftmaxRead softmax_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& beta, const SoftmaxReadOptions& options = {});

// The same by torch's fused attention on [v, exp(beta v)], whatever the device.
SoftmaxRead attention_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& beta, const SoftmaxReadOptions& options = {});

// The same in plain ATen, as one would write it on paper. Keeps Tq x Tk; differentiable any number of times.
SoftmaxRead softmax_read_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                    const std::optional<at::Tensor>& beta, const SoftmaxReadOptions& options = {});

}  // namespace fem
