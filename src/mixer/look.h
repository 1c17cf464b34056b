#pragma once

#include <optional>
#include <vector>

#include "fem/inspect.h"

namespace fem {

// What a read of some chosen tokens consists of, in float64.
struct ChosenRead {
  at::Tensor log_weights;          // log p_t(i) up to a constant of the row, [B, N, H, C, T]; -inf: not seen
  at::Tensor value;                // [B, T, H, V]
  std::optional<at::Tensor> beta;  // [H, V]; none: the mean is read
  at::Tensor lambda, outer_gate;   // [B, N, H, V]; undefined: 0 and 1
};

// Everything that follows from them; not capped and energy.
Inspection look(const ChosenRead& read);

// Which tokens the chosen ones see, [B or 1, N, T].
at::Tensor seen_by(const at::Tensor& chosen, int64_t tokens, const MixerOptions& options, const Batch& batch);

// As a tensor; throws one sentence unless they are tokens of x [B, T, D].
at::Tensor chosen_tokens(const char* who, const std::vector<int64_t>& positions, const at::Tensor& x);

// F* of the keys at the queries of the chosen tokens and its gradient's norm, into an inspection; queries and keys
// [B, T, H, K] of sequences that are neither padded nor packed.
void add_energy(Inspection& inspection, const at::Tensor& query, const at::Tensor& key, const at::Tensor& chosen);

}  // namespace fem
