#pragma once

#include <optional>

#include "fem/ops/read.h"

namespace fem {

// A diagonal selective state-space model with a positive impulse response, per channel
//   h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t      (S u)_t = C_t.h_t + D u_t
struct Ssm {
  at::Tensor delta;      // [B, T, H, V], not negative
  at::Tensor A;          // [H, V, R], not positive
  at::Tensor B, C;       // [B, T, R], not negative, shared by all channels
  at::Tensor D;          // [H, V], not negative
  bool delayed = false;  // (S u)_t = C_t.h_{t-1} + D u_t: a token reaches the state after it was read
};

// p_t(i) ~ the response of S at t to an impulse at i: mean = S v / S 1, free_energy = 1/beta log(S e^{beta v} / S 1).
//   value [B, T, H, V]   beta [H, V], positive
//   ->  mean, free_energy, log_normalizer [B, T, H, V]   state [N, 3, H, V, R] ([N, 2, H, V, R] without beta)
// The state is h for the inputs 1, v, exp(beta v). Time and memory grow as T. Gradients flow to every input.
RecurrentRead ssm_read(const at::Tensor& value, const std::optional<at::Tensor>& beta, const Ssm& ssm,
                       const RecurrentReadOptions& options = {});

RecurrentRead ssm_read_definition(const at::Tensor& value, const std::optional<at::Tensor>& beta, const Ssm& ssm,
                                  const RecurrentReadOptions& options = {});

}  // namespace fem
