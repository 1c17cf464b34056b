// Reads whose prior is one of its own for every channel: p_t(i) ~ exp(log_weight_i + sum_{tau=i+1..t} log_decay_tau).
#pragma once

#include <optional>

#include "fem/ops/read.h"

namespace fem {

// log_weight, log_decay, value [B, T, H, V]; log_decay <= 0; at least one of the two is given, the other counts as 0.
//   ->  mean, free_energy, log_normalizer [B, T, H, V]   state [N, 4, H, V] ([N, 3, H, V] without beta)
// The state is a scale m and the sums e^-m sum_i weight_i [v_i, exp(beta v_i), 1], in the order m, 1, v, exp. Time and
// memory grow as T, weights of any size neither overflow nor vanish. Gradients flow to every input; those of a state
// are those of sums e^m: its m alone is a choice of units.
RecurrentRead channel_read(const at::Tensor& value, const std::optional<at::Tensor>& beta,
                           const std::optional<at::Tensor>& log_weight, const std::optional<at::Tensor>& log_decay,
                           const RecurrentReadOptions& options = {});

RecurrentRead channel_read_definition(const at::Tensor& value, const std::optional<at::Tensor>& beta,
                                      const std::optional<at::Tensor>& log_weight,
                                      const std::optional<at::Tensor>& log_decay,
                                      const RecurrentReadOptions& options = {});

// p_t(i) ~ exp(key_i): the attention-free transformer's prior.
inline RecurrentRead aft_read(const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& beta,
                              const RecurrentReadOptions& options = {}) {
  return channel_read(value, beta, key, std::nullopt, options);
}

// p_t(i) ~ exp(sum_{tau=i+1..t} log_decay_tau): a linear RNN's prior.
inline RecurrentRead decay_read(const at::Tensor& value, const std::optional<at::Tensor>& beta,
                                const at::Tensor& log_decay, const RecurrentReadOptions& options = {}) {
  return channel_read(value, beta, std::nullopt, log_decay, options);
}

}  // namespace fem
