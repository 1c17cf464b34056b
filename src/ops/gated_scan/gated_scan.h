// fem::gated_scan as an operator (ops/operator.h): h is kept instead of u, and the units are formed again.
#pragma once

#include "fem/ops/gated_scan.h"
#include "ops/operator.h"

namespace fem {

constexpr double kScanNormEps = 1e-5, kScanNormFloor = 1e-12;  // of LayerNorm, of the gate's l2 norm

// Added to the gate before it is normalised; the formula with SiLU has no such term.
constexpr double scan_gate_eps(bool silu) { return silu ? 0 : 1e-8; }

struct GatedScanOp {
  static constexpr const char* kSchema =
      "gated_scan(Tensor u, Tensor decay_logit, Tensor gate_logit, Tensor norm_weight, Tensor? norm_bias=None, "
      "Tensor? initial=None, Tensor? key_mask=None, Tensor? restart=None, bool reverse=False, bool silu=False) "
      "-> (Tensor units, Tensor h)";
  struct Inputs {
    at::Tensor u, decay_logit, gate_logit, norm_weight;
    OptionalTensor norm_bias, initial, key_mask, restart;
    bool reverse, silu;
    FEM_FIELDS(u, decay_logit, gate_logit, norm_weight, norm_bias, initial, key_mask, restart, reverse, silu)
  };
  struct Outputs {
    at::Tensor units, h;
    FEM_FIELDS(units, h)
  };
  static constexpr size_t kLearned = 6;
  static constexpr std::array<size_t, 1> kKeptOutputs{1};
  static constexpr bool kTakesMissingGradients = true;  // of h nobody asks, as a rule

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  static Inputs gradient(const BackwardOf<GatedScanOp>& b);
  static void keep(Inputs& in) { in.u = in.decay_logit; }
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<GatedScanOp>& b);
};

}  // namespace fem
