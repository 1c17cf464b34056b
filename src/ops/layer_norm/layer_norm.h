// fem::layer_norm as an operator (ops/operator.h): torch's LayerNorm, whose result can be made again in backward.
#pragma once

#include "ops/operator.h"

namespace fem {

struct LayerNormOp {
  static constexpr const char* kSchema =
      "layer_norm(Tensor x, Tensor weight, Tensor? bias=None, bool recompute=False) "
      "-> (Tensor y, Tensor mean, Tensor rstd)";
  struct Inputs {
    at::Tensor x, weight;
    OptionalTensor bias;
    bool recompute;  // y is not kept by operators that are given it: their backward has it made again (ops/remake.h)
    FEM_FIELDS(x, weight, bias, recompute)
  };
  struct Outputs {
    at::Tensor y, mean, rstd;
    FEM_FIELDS(y, mean, rstd)
  };
  static constexpr size_t kLearned = 3;
  static constexpr size_t kConstantOutputs = 2;
  static constexpr std::array<size_t, 2> kKeptOutputs{1, 2};
  static constexpr bool kAnnounced = false;  // torch's own

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<LayerNormOp>& b);
};

// LayerNorm over the last dimension of x [..., D].
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool recompute = false);

}  // namespace fem
