// fem::channel_scan, the causal scan under channel_read, as an operator (ops/operator.h). Kept are the inputs and the
// checkpoints, 4 numbers a channel for every kChunk tokens; sums are computed again from them.
#pragma once

#include "fem/ops/channel_read.h"
#include "ops/recurrent.h"

namespace fem {

struct ChannelScanOp {
  static constexpr const char* kCalled = "channel_read";
  static constexpr const char* kSchema =
      "channel_scan(Tensor value, Tensor? beta=None, Tensor? log_weight=None, Tensor? log_decay=None, "
      "Tensor? initial=None, Tensor? key_mask=None, Tensor? cu_seqlens=None, bool strict=False) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state, Tensor checkpoints)";
  struct Inputs {
    at::Tensor value;
    OptionalTensor beta, log_weight, log_decay, initial, key_mask, cu_seqlens;
    bool strict;  // token t reads i < t instead of i <= t
    FEM_FIELDS(value, beta, log_weight, log_decay, initial, key_mask, cu_seqlens, strict)

    int64_t streams() const { return beta ? 3 : 2; }  // of sums: 1, v, exp(beta v)
  };
  using Outputs = ScanReads;
  static constexpr size_t kLearned = 5;
  static constexpr size_t kConstantOutputs = 1;
  static constexpr std::array<size_t, 1> kKeptOutputs{4};
  static constexpr bool kTakesMissingGradients = true;

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  // Chunks side by side, on every device (any_device.cpp)
  static Outputs elsewhere(const Inputs& in, int64_t portion_memory = kPortionMemory);
  static Inputs gradient_elsewhere(const BackwardOf<ChannelScanOp>& b, int64_t portion_memory = kPortionMemory);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<ChannelScanOp>& b);
};

}  // namespace fem
