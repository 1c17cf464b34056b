// fem::modulate as an operator (ops/operator.h). The factor, which is as wide as x, is formed again in backward.
#pragma once

#include "fem/ops/modulate.h"
#include "ops/operator.h"

namespace fem {

struct ModulateOp {
  static constexpr const char* kSchema =
      "modulate(Tensor x, Tensor? hidden=None, Tensor? weight=None, Tensor? limit=None, Tensor? positions=None, "
      "Tensor? frequency=None, float? floor=None, bool added=False, bool halves=False, bool recompute=False) "
      "-> Tensor y";
  struct Inputs {
    at::Tensor x;
    OptionalTensor hidden, weight, limit, positions, frequency;
    std::optional<double> floor;
    bool added, halves;
    bool recompute;  // y is not kept by operators that are given it: their backward has it made again (ops/remake.h)
    FEM_FIELDS(x, hidden, weight, limit, positions, frequency, floor, added, halves, recompute)
  };
  struct Outputs {
    at::Tensor y;
    FEM_FIELDS(y)
  };
  static constexpr size_t kLearned = 4;

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<ModulateOp>& b);
};

}  // namespace fem
