#pragma once

#include <optional>

#include "fem/ops/read.h"

namespace fem {

// p_t(i) ~ exp(sum_{tau=i+1..t} log_decay_tau) query_t.key_i: linear attention, gated if log_decay is given.
//   query, key [B, T, H, K], not negative   value [B, T, H, V]   beta [H, V], positive   log_decay [B, T, H], <= 0
//   ->  mean, free_energy [B, T, H, V]   log_normalizer [B, T, H]   state [N, H, K, 2 V + 1] (V + 1 without beta)
// The state is sum_i decay key_i x [v_i, exp(beta v_i), 1]. Time and memory grow as T. Gradients flow to every input.
RecurrentRead linear_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const std::optional<at::Tensor>& beta,
                          const std::optional<at::Tensor>& log_decay = std::nullopt,
                          const RecurrentReadOptions& options = {});

RecurrentRead linear_read_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                     const std::optional<at::Tensor>& beta,
                                     const std::optional<at::Tensor>& log_decay = std::nullopt,
                                     const RecurrentReadOptions& options = {});

}  // namespace fem
