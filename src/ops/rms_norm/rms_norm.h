// fem::rms_norm as an operator (ops/operator.h).
#pragma once

#include "fem/ops/rms_norm.h"
#include "ops/operator.h"

namespace fem {

struct RmsNormOp {
  static constexpr const char* kSchema = "rms_norm(Tensor x, Tensor scale, float eps=1e-05) -> Tensor y";
  struct Inputs {
    at::Tensor x, scale;
    double eps;
    FEM_FIELDS(x, scale, eps)
  };
  struct Outputs {
    at::Tensor y;
    FEM_FIELDS(y)
  };
  static constexpr size_t kLearned = 2;

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<RmsNormOp>& b);
};

}  // namespace fem
