#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace fem {

// h_t = exp(log_decay_t) h_{t-1} + u_t along dimension 1, h_{-1} = initial (0 unless given).
//   u, log_decay [B, T, C]   initial [B, C]   ->   h [B, T, C]
// log_decay <= 0; -inf forgets the past exactly (the border of a packed sequence). Exact at any length: nothing is
// divided by a cumulative decay. The last h is the initial of a continuation. Gradients flow to all three.
at::Tensor decay_scan(const at::Tensor& u, const at::Tensor& log_decay,
                      const std::optional<at::Tensor>& initial = std::nullopt);

at::Tensor decay_scan_definition(const at::Tensor& u, const at::Tensor& log_decay,
                                 const std::optional<at::Tensor>& initial = std::nullopt);

}  // namespace fem
