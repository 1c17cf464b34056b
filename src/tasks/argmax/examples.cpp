#include "tasks/argmax/examples.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace fem {
namespace {

constexpr double kNoise = 0.05;
constexpr double kMargin = 1.0;

// A bijection of 32 bits (the finaliser of MurmurHash3): neighbouring examples get unlike seeds, never equal ones.
uint32_t scramble(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13)) * 0xC2B2AE35U;
  return x ^ (x >> 16);
}

at::Generator generator_of(int64_t seed, int64_t example) {
  return at::detail::createCPUGenerator(scramble(static_cast<uint32_t>(seed * kArgmaxExamples + example)));
}

}  // namespace

ArgmaxBatch argmax_examples(const ArgmaxOptions& options, int64_t seed, const Rows& rows) {
  const at::NoGradGuard no_grad;
  ArgmaxBatch batch;
  batch.value = at::empty({rows.count, options.length, options.dim});
  batch.winner = at::empty({rows.count, options.dim}, at::kLong);
  at::parallel_for(0, rows.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      at::Generator generator = generator_of(seed, rows.first + b * rows.stride);
      batch.value.select(0, b).normal_(0, kNoise, generator);
      batch.winner.select(0, b).random_(0, options.length, generator);
    }
  });
  const at::Tensor winner = batch.winner.unsqueeze(1);
  batch.value.scatter_add_(1, winner, at::full(winner.sizes(), kMargin));
  batch.target = batch.value.gather(1, winner).squeeze(1);
  return batch;
}

ArgmaxBatch argmax_train_rows(const ArgmaxOptions& options, int64_t seed, int64_t batch, const Rows& rows) {
  const int64_t cycle = std::max<int64_t>(options.train_examples / batch, 1) * batch;
  return argmax_examples(options, seed, {rows.first % cycle, rows.count, rows.stride});
}

int64_t channels_found(const at::Tensor& prediction, const ArgmaxBatch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor nearest = (batch.value - prediction.unsqueeze(1)).abs().argmin(1);
  return nearest.eq(batch.winner).sum().item<int64_t>();
}

}  // namespace fem
