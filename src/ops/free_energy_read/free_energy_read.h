// fem::free_energy_read as an operator (ops/operator.h): a definition alone.
#pragma once

#include "fem/ops/free_energy_read.h"
#include "ops/operator.h"

namespace fem {

struct FreeEnergyReadOp {
  static constexpr const char* kSchema =
      "free_energy_read(Tensor p, Tensor v, Tensor beta) -> (Tensor free_energy, Tensor posterior)";
  struct Inputs {
    at::Tensor p, v, beta;
    FEM_FIELDS(p, v, beta)
  };
  struct Outputs {
    at::Tensor free_energy, posterior;
    FEM_FIELDS(free_energy, posterior)
  };
  static constexpr size_t kLearned = 3;
  static constexpr bool kAnnounced = false;

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
};

}  // namespace fem
