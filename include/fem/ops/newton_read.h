// Attention whose step is preconditioned by the curvature of its energy: a Newton step, its series cut after one term.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace fem {

struct NewtonReadOptions {
  bool of_values = false;              // the covariance is that of the values, not of the keys
  double rho = 0;                      // share of -q in the gradient: 1 the elastic energy's, 0 attention's; keys only
  std::optional<double> scale;         // of the scores; 1/sqrt(K) unless given
  bool causal = true;                  // query t is position Tk - Tq + t and sees no later key
  std::optional<at::Tensor> key_mask;  // [B, Tk] bool, true = a real token
  std::optional<at::Tensor> cu_seqlens;  // [n + 1] int, borders 0 ... T of sequences packed in one row (B = 1)
};

// With p_t(i) = softmax_i(scale q_t.k_i) over what t may see, u = k (or v: of_values), m_t = sum_i p_t(i) u_i and
// g_t = m_t - rho q_t:
//   w_t(i) = p_t(i) (1 + alpha (u_i.g_t - m_t.g_t))     read_t = sum_i w_t(i) v_i
//   query [B, Tq, H, K]   key [B, Tk, H, K]   value [B, Tk, H, V]   alpha [H]   ->   [B, Tq, H, V]
// The weights w sum to 1; alpha = 0 is attention. A query that sees nothing reads 0, with zero gradients. Gradients
// flow to query, key, value and alpha; of size Tq x Tk nothing is kept.
at::Tensor newton_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& alpha,
                       const NewtonReadOptions& options = {});

// The same in plain ATen, as one would write it on paper.
at::Tensor newton_read_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const at::Tensor& alpha, const NewtonReadOptions& options = {});

}  // namespace fem
