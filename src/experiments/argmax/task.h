#pragma once

#include <ATen/core/Tensor.h>

#include "experiments/argmax/config.h"

namespace fem {

// Each channel's largest value stands at a token of its own.
struct ArgmaxBatch {
  at::Tensor value;   // [B, T, D]: N(0, 0.05^2), plus 1 at the winner
  at::Tensor winner;  // [B, D] int64, uniform in [0, T)
  at::Tensor target;  // [B, D] the value at the winner
};

// Examples first ... first + count - 1. An example is a function of the seed and of its index alone, so batches can be
// drawn in any order, by any number of threads, and again after an interruption. Training examples are
// [0, train_examples), validation examples follow them.
ArgmaxBatch argmax_examples(const ArgmaxConfig& config, int64_t first, int64_t count);

// The batch of a training step: the training examples in order, from the start again when they end.
ArgmaxBatch argmax_train_batch(const ArgmaxConfig& config, int64_t step);

// Share of channels whose prediction [B, D] lies nearest to the winner's value.
double index_accuracy(const at::Tensor& prediction, const ArgmaxBatch& batch);

}  // namespace fem
