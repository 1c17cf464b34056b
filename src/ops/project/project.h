// fem::project as an operator (ops/operator.h).
#pragma once

#include "fem/ops/project.h"
#include "ops/operator.h"

namespace fem {

struct ProjectOp {
  static constexpr const char* kSchema = "project(Tensor x, Tensor[] weights, Tensor[] biases) -> Tensor[] y";
  struct Inputs {
    at::Tensor x;
    TensorVector weights, biases;
    FEM_FIELDS(x, weights, biases)
  };
  struct Outputs {
    TensorVector y;
    FEM_FIELDS(y)
  };
  static constexpr size_t kLearned = 3;
  static constexpr bool kRemakesInputs = true;
  static constexpr bool kAnnounced = false;  // torch's own products

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static bool has_kernel(const Inputs& in);
  static Outputs definition(const Inputs& in);
  static Inputs gradient(const BackwardOf<ProjectOp>& b);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<ProjectOp>& b);
};

}  // namespace fem
