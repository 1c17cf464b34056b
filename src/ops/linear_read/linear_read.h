// fem::linear_scan, the causal scan under linear_read, as an operator (ops/operator.h).
#pragma once

#include "fem/ops/linear_read.h"
#include "ops/recurrent.h"

namespace fem {

struct LinearScanOp {
  static constexpr const char* kCalled = "linear_read";
  static constexpr const char* kSchema =
      "linear_scan(Tensor query, Tensor key, Tensor value, Tensor? beta=None, Tensor? log_decay=None, "
      "Tensor? initial=None, Tensor? key_mask=None, Tensor? cu_seqlens=None, bool strict=False) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state, Tensor checkpoints)";
  struct Inputs {
    at::Tensor query, key, value;
    OptionalTensor beta, log_decay, initial, key_mask, cu_seqlens;
    bool strict;  // token t reads i < t instead of i <= t
    FEM_FIELDS(query, key, value, beta, log_decay, initial, key_mask, cu_seqlens, strict)

    c10::SymInt columns() const { return value.sym_size(3) * (beta ? 2 : 1) + 1; }  // of the state: v, exp(beta v), 1
  };
  using Outputs = ScanReads;
  static constexpr size_t kLearned = 6;
  static constexpr size_t kConstantOutputs = 1;
  static constexpr std::array<size_t, 4> kKeptOutputs{0, 1, 2, 4};
  static constexpr bool kTakesMissingGradients = true;
  static constexpr bool kRemakesInputs = true;

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  // In batched products, on every device (any_device.cpp)
  static Outputs elsewhere(const Inputs& in, int64_t portion_memory = kPortionMemory);
  static Inputs gradient_elsewhere(const BackwardOf<LinearScanOp>& b, int64_t portion_memory = kPortionMemory);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<LinearScanOp>& b);
};

// A state is kept for backward where the position in the row is a multiple of this.
constexpr int64_t kLinearCheckpointTokens = 256;

}  // namespace fem
