// fem::ssm_scan, the causal scan under ssm_read, as an operator (ops/operator.h). Kept are the inputs and the states
// before every kChunk tokens.
#pragma once

#include "fem/ops/ssm_read.h"
#include "ops/recurrent.h"

namespace fem {

struct SsmScanOp {
  static constexpr const char* kCalled = "ssm_read";
  static constexpr const char* kSchema =
      "ssm_scan(Tensor value, Tensor? beta, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor D, "
      "Tensor? initial=None, Tensor? key_mask=None, Tensor? cu_seqlens=None, bool strict=False, bool delayed=False) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state, Tensor checkpoints)";
  struct Inputs {
    at::Tensor value;
    OptionalTensor beta;
    at::Tensor delta, A, B, C, D;
    OptionalTensor initial, key_mask, cu_seqlens;
    bool strict;   // i < t instead of i <= t: no D u, and the state as it decays into the token
    bool delayed;  // the state before the token, whatever it is: Ssm::delayed
    FEM_FIELDS(value, beta, delta, A, B, C, D, initial, key_mask, cu_seqlens, strict, delayed)

    int64_t streams() const { return beta ? 3 : 2; }  // 1, v, exp(beta v)
  };
  using Outputs = ScanReads;
  static constexpr size_t kLearned = 8;
  static constexpr size_t kConstantOutputs = 1;
  static constexpr std::array<size_t, 1> kKeptOutputs{4};
  static constexpr bool kTakesMissingGradients = true;

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  // Chunks side by side, on every device (any_device.cpp)
  static Outputs elsewhere(const Inputs& in, int64_t portion_memory = kPortionMemory);
  static Inputs gradient_elsewhere(const BackwardOf<SsmScanOp>& b, int64_t portion_memory = kPortionMemory);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<SsmScanOp>& b);
};

}  // namespace fem
