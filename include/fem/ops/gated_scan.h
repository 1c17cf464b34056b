#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace fem {

// Of LayerNorm over the channels; both [C].
struct ScanNorm {
  at::Tensor weight;
  std::optional<at::Tensor> bias;
};

struct GatedScanOptions {
  std::optional<at::Tensor> initial;   // [B, C] the h before the first token, in its dtype; 0 unless given
  std::optional<at::Tensor> key_mask;  // [B, T] bool, true = a real token; others add nothing and let h pass
  std::optional<at::Tensor> restart;   // [B, T] bool: forgets all that came before, exactly
  bool reverse = false;                // from the last token to the first
  bool silu = false;                   // the other gate, see below
};

struct GatedScan {
  at::Tensor units;  // [B, T, C]
  at::Tensor h;      // [B, T, C], float32 also of bfloat16 inputs; the last is the initial of a continuation
};

// The conditioner's units in one operator. u, decay_logit, gate_logit [B, T, C]:
//   h_t     = exp(-softplus(decay_logit_t)) h_{t-1} + u_t
//   units_t = sqrt(C) normalise(softplus(gate_logit_t) + 1e-8) LayerNorm(h_t), normalised in l2 over C
//   silu:     SiLU(normalise(softplus(gate_logit_t))) LayerNorm(h_t), as the paper prints it
// Gradients flow to the three, to the norm and to initial. Splitting a sequence and passing h on is bitwise the same.
GatedScan gated_scan(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                     const ScanNorm& norm, const GatedScanOptions& options = {});

GatedScan gated_scan_definition(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                                const ScanNorm& norm, const GatedScanOptions& options = {});

}  // namespace fem
