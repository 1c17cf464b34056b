// fem::swiglu as an operator (ops/operator.h).
#pragma once

#include "fem/ops/swiglu.h"
#include "ops/operator.h"

namespace fem {

struct SwigluOp {
  static constexpr const char* kSchema = "swiglu(Tensor gate, Tensor up) -> Tensor y";
  struct Inputs {
    at::Tensor gate, up;
    FEM_FIELDS(gate, up)
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
  static Inputs gradient_kernel(const BackwardOf<SwigluOp>& b);
};

}  // namespace fem
