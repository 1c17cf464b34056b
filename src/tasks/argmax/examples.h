#pragma once

#include <ATen/core/Tensor.h>

#include "tasks/argmax/options.h"
#include "train/task.h"

namespace fem {

// torch's CPU generator keeps 32 bits of its seed: 18 name the example, 14 the seed.
constexpr int64_t kArgmaxExamples = 1 << 18, kArgmaxSeeds = 1 << 14;

// Each channel's largest value stands at a token of its own.
struct ArgmaxBatch {
  at::Tensor value;   // [B, T, D]: N(0, 0.05^2), plus 1 at the winner
  at::Tensor winner;  // [B, D] int64, uniform in [0, T)
  at::Tensor target;  // [B, D] the value at the winner
};

// Examples first, first + stride, ... of a seed. An example is a function of the seed and of its number alone, so
// batches can be drawn in any order, by any number of threads, and again after an interruption. Training examples are
// [0, train_examples), validation examples follow them.
ArgmaxBatch argmax_examples(const ArgmaxOptions& options, int64_t seed, const Rows& rows);

// The training examples that stand at the rows of a run with that batch: in order, from the start again when no whole
// batch is left.
ArgmaxBatch argmax_train_rows(const ArgmaxOptions& options, int64_t seed, int64_t batch, const Rows& rows);

// Channels [B, D] whose prediction lies nearest to the winner's value.
int64_t channels_found(const at::Tensor& prediction, const ArgmaxBatch& batch);

}  // namespace fem
