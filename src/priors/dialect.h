// Where the dialects differ: a row each. Whatever computes asks the row, never the name (docs/notation.md tells why).
#pragma once

#include "fem/options.h"

namespace fem {

struct DialectRules {
  // The conditioner
  bool silu_units = false;         // I.1: SiLU of its gate instead of sqrt(H_c)
  bool adds_to_prior = false;      // 34a: theta + c instead of theta (1 + c)
  bool gates_then_change = false;  // 34c, d: gate(logit) (1 + c) instead of gate(logit (1 + c))
  bool starts_silent = true;       // out_proj starts at 0; else as every projection does
  bool narrow = false;             // conv_hidden unset is E / 16; else 64
  // rnn_softmax
  bool aft_has_query = true;          // a factor of what is read; else p ~ exp(k_i) alone, a key for every channel
  bool aft_query_inside_log = false;  // the factor multiplies the mixed streams: F + log(q) / beta
  // gla and rnn_decay
  bool relu_decay = false;     // gla: g = -(relu + eps), not conditioned, instead of -softplus
  bool spread_starts = false;  // decays and mamba's steps start spread over time scales; else with biases of 0
  // mamba
  bool falling_step = false;       // Delta = exp(-softplus) instead of softplus
  bool squashed_values = false;    // v = sigmoid(v) before the clip
  bool mamba_conditioned = false;  // Delta, B and C are
  bool mamba_delayed = false;      // eq. 32: H(0) = D, H(tau) = C A^{tau-1} B
};

inline const DialectRules& rules_of(Dialect dialect) {
  static constexpr DialectRules corrected{.spread_starts = true};
  static constexpr DialectRules reference{
      .aft_query_inside_log = true, .relu_decay = true, .falling_step = true, .squashed_values = true};
  static constexpr DialectRules paper{.silu_units = true,
                                      .adds_to_prior = true,
                                      .gates_then_change = true,
                                      .starts_silent = false,
                                      .narrow = true,
                                      .aft_has_query = false,
                                      .mamba_conditioned = true,
                                      .mamba_delayed = true};
  switch (dialect) {
    case Dialect::kReference:
      return reference;
    case Dialect::kPaper:
      return paper;
    case Dialect::kCorrected:
      break;
  }
  return corrected;
}

}  // namespace fem
