#pragma once

#include <ATen/core/Tensor.h>

#include "tasks/mad/options.h"

namespace fem {

// [N, T] int64; targets that do not count are kMadIgnored.
struct MadSet {
  at::Tensor tokens, targets;
};

// Both of one stream of random numbers: the training examples first, the test's after them.
struct MadData {
  MadSet train, test;
};
MadData mad_data(const MadDataOptions& options);

// How many sequences a batch of the test has, by which the published accuracy is an average over batches.
inline constexpr int64_t kMadTestBatch = 128;

// What adds up over the batches of a test.
struct MadScore {
  double nats = 0, targets = 0, hits = 0;
  double recall = 0, batches = 0;  // macro accuracy, summed over batches

  // One batch by logits [N, V] of its targets [N]: adds to all of the above.
  void add(const at::Tensor& logits, const at::Tensor& targets);
};

// The mean over classes of the share of a class's targets that were named. Classes are those that occur as a target or
// as a prediction: naming one that is nowhere a target costs as much as missing all of another.
double macro_accuracy(const at::Tensor& predicted, const at::Tensor& targets, int64_t classes);

}  // namespace fem
