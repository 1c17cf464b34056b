// fem::gated_read as an operator (ops/operator.h): both gates are cheaper to compute again than to keep.
#pragma once

#include "fem/ops/gated_read.h"
#include "ops/operator.h"

namespace fem {

constexpr double kNormFloor = 1e-5;

struct GatedReadOp {
  static constexpr const char* kSchema =
      "gated_read(Tensor mean, Tensor? free_energy, Tensor? temperature_logit, Tensor? gate_logit, float eps=1e-06) "
      "-> Tensor y";
  struct Inputs {
    at::Tensor mean;
    OptionalTensor free_energy, temperature_logit, gate_logit;
    double eps;
    FEM_FIELDS(mean, free_energy, temperature_logit, gate_logit, eps)
  };
  struct Outputs {
    at::Tensor y;
    FEM_FIELDS(y)
  };
  static constexpr size_t kLearned = 4;
  static constexpr bool kRemakesInputs = true;

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<GatedReadOp>& b);
};

}  // namespace fem
