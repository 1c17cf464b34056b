// fem::decay_scan as an operator (ops/operator.h): h is kept instead of u.
#pragma once

#include "fem/ops/decay_scan.h"
#include "ops/operator.h"

namespace fem {

struct DecayScanOp {
  static constexpr const char* kSchema = "decay_scan(Tensor u, Tensor log_decay, Tensor? initial=None) -> Tensor h";
  struct Inputs {
    at::Tensor u, log_decay;
    OptionalTensor initial;
    FEM_FIELDS(u, log_decay, initial)
  };
  struct Outputs {
    at::Tensor h;
    FEM_FIELDS(h)
  };
  static constexpr size_t kLearned = 3;
  static constexpr std::array<size_t, 1> kKeptOutputs{0};

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  static Inputs gradient(const BackwardOf<DecayScanOp>& b);
  static void keep(Inputs& in) { in.u = in.log_decay; }
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<DecayScanOp>& b);
};

// Gradients of (u, log_decay, initial) by that of h, in plain ATen.
DecayScanOp::Inputs decay_scan_gradient(const at::Tensor& grad, const at::Tensor& log_decay,
                                        const OptionalTensor& initial, const at::Tensor& h);

}  // namespace fem
