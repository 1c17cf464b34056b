#pragma once

#include <optional>

#include "fem/ops/read.h"

namespace fem {

// Both gates of the mixer in one pass. All [B, T, H, V]; the logits are before their nonlinearity:
//   lambda = sigmoid(temperature_logit)                                     inner gate
//   g      = sqrt(V) normalise(softplus(gate_logit) + eps)                  outer gate, l2 over V with floor 1e-5
//   out    = g ((1 - lambda) mean + lambda free_energy)
// Without free_energy (and temperature_logit) the inner gate is open to the mean alone; without gate_logit g = 1.
at::Tensor gated_read(const Read& read, const std::optional<at::Tensor>& temperature_logit,
                      const std::optional<at::Tensor>& gate_logit, double eps = 1e-6);

at::Tensor gated_read_definition(const Read& read, const std::optional<at::Tensor>& temperature_logit,
                                 const std::optional<at::Tensor>& gate_logit, double eps = 1e-6);

}  // namespace fem
