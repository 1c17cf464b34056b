#include "experiments/argmax/task.h"

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

// torch's CPU generator keeps 32 bits of its seed: 18 name the example (200,000 + 2,000 < 2^18), 14 the seed.
at::Generator generator_of(const ArgmaxConfig& config, int64_t example) {
  return at::detail::createCPUGenerator(
      scramble(static_cast<uint32_t>(config.seed) << 18 | static_cast<uint32_t>(example)));
}

}  // namespace

ArgmaxBatch argmax_examples(const ArgmaxConfig& config, int64_t first, int64_t count) {
  const at::NoGradGuard no_grad;
  ArgmaxBatch batch;
  batch.value = at::empty({count, config.length, config.dim});
  batch.winner = at::empty({count, config.dim}, at::kLong);
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      at::Generator generator = generator_of(config, first + b);
      batch.value.select(0, b).normal_(0, kNoise, generator);
      batch.winner.select(0, b).random_(0, config.length, generator);
    }
  });
  const at::Tensor winner = batch.winner.unsqueeze(1);
  batch.value.scatter_add_(1, winner, at::full(winner.sizes(), kMargin));
  batch.target = batch.value.gather(1, winner).squeeze(1);
  return batch;
}

ArgmaxBatch argmax_train_batch(const ArgmaxConfig& config, int64_t step) {
  const int64_t batches = std::max<int64_t>(config.train_examples / config.batch, 1);
  return argmax_examples(config, step % batches * config.batch, config.batch);
}

double index_accuracy(const at::Tensor& prediction, const ArgmaxBatch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor nearest = (batch.value - prediction.unsqueeze(1)).abs().argmin(1);
  return nearest.eq(batch.winner).to(at::kDouble).mean().item<double>();
}

}  // namespace fem
