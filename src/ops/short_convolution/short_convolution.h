// fem::short_convolution as an operator (ops/operator.h).
#pragma once

#include "fem/ops/short_convolution.h"
#include "ops/operator.h"

namespace fem {

struct ShortConvolutionOp {
  static constexpr const char* kSchema =
      "short_convolution(Tensor x, Tensor weight, Tensor? initial=None, Tensor? restart=None, bool silu=False) "
      "-> Tensor y";
  struct Inputs {
    at::Tensor x, weight;
    OptionalTensor initial, restart;
    bool silu;
    FEM_FIELDS(x, weight, initial, restart, silu)
  };
  struct Outputs {
    at::Tensor y;
    FEM_FIELDS(y)
  };
  static constexpr size_t kLearned = 3;

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<ShortConvolutionOp>& b);
};

}  // namespace fem
