// What a read is, whatever the prior. Every read takes its arguments in one order: query and key, if it has them,
// value, beta, what else its prior has; then causal, window, key_mask, cu_seqlens, initial.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace fem {

// What every prior's read returns, [B, T, H, V] each.
struct Read {
  at::Tensor mean;         // mu_tj = sum_i p_t(i) v_ij
  at::Tensor free_energy;  // F_tj = 1/beta_j log sum_i p_t(i) exp(beta_j v_ij); undefined without beta
};

// What the linear-time priors return besides. Both parts are differentiable, as float32 (float64 of float64 inputs).
struct RecurrentRead : Read {
  at::Tensor log_normalizer;  // log of the sum of the unnormalised p_t(i), a head or a channel; -inf: nothing visible
  at::Tensor state;           // [N, ...] after the last token of each sequence; undefined if not causal
};

struct RecurrentReadOptions {
  bool causal = true;                    // off: every token of the sequence is seen, from both sides
  std::optional<at::Tensor> key_mask;    // [B, T] bool, true = a real token; others add nothing and let no time pass
  std::optional<at::Tensor> cu_seqlens;  // [n + 1] int, borders 0 ... T of sequences packed in one row (B = 1)
  std::optional<at::Tensor> initial;     // [N, ...] the state of an earlier call; N = B, or n with cu_seqlens
};

// v limited to |beta v| <= cap: value [B, T, H, V], beta [H, V], cap in (0, 40].
at::Tensor clip_value(const at::Tensor& value, const at::Tensor& beta, double cap);

}  // namespace fem
