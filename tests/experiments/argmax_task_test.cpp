#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "experiments/argmax/task.h"

namespace fem {
namespace {

ArgmaxConfig small() { return {.dim = 24, .length = 40, .batch = 16}; }

TEST(ArgmaxTask, WinnerHoldsTheLargestValueOfItsChannel) {
  const ArgmaxBatch batch = argmax_examples(small(), 0, 64);
  EXPECT_TRUE(at::equal(batch.value.argmax(1), batch.winner));
  EXPECT_TRUE(at::equal(std::get<0>(batch.value.max(1)), batch.target));
}

TEST(ArgmaxTask, ValuesHaveTheStatedDistribution) {
  ArgmaxConfig config = small();
  const ArgmaxBatch batch = argmax_examples(config, 0, 400);
  const at::Tensor noise = batch.value.to(at::kDouble).scatter(1, batch.winner.unsqueeze(1), 0.0);
  const double count = static_cast<double>(noise.numel() - batch.winner.numel());
  EXPECT_NEAR(noise.sum().item<double>() / count, 0, 5 * 0.05 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(noise.square().sum().item<double>() / count), 0.05, 5 * 0.05 / std::sqrt(2 * count));
  const double winners = static_cast<double>(batch.target.numel());
  EXPECT_NEAR(batch.target.to(at::kDouble).mean().item<double>(), 1, 5 * 0.05 / std::sqrt(winners));
  EXPECT_NEAR(batch.target.to(at::kDouble).std().item<double>(), 0.05, 5 * 0.05 / std::sqrt(2 * winners));
}

TEST(ArgmaxTask, WinnersAreUniformOverTokens) {
  const ArgmaxConfig config = small();
  const ArgmaxBatch batch = argmax_examples(config, 0, 1000);
  const at::Tensor counts = at::bincount(batch.winner.flatten(), {}, config.length).to(at::kDouble);
  const double expected = static_cast<double>(batch.winner.numel()) / config.length;
  // Chi-square with 39 degrees of freedom: mean 39, standard deviation 8.8.
  EXPECT_LT(((counts - expected).square() / expected).sum().item<double>(), 39 + 5 * 8.8);
}

TEST(ArgmaxTask, ExampleDependsOnSeedAndIndexAlone) {
  const ArgmaxConfig config = small();
  const ArgmaxBatch all = argmax_examples(config, 0, 8), tail = argmax_examples(config, 5, 3);
  EXPECT_TRUE(at::equal(all.value.narrow(0, 5, 3), tail.value));
  EXPECT_TRUE(at::equal(all.winner.narrow(0, 5, 3), tail.winner));

  ArgmaxConfig other_mixer = config, other_seed = config;
  other_mixer.mixer = "mean";
  other_seed.seed = 1;
  EXPECT_TRUE(at::equal(argmax_examples(other_mixer, 0, 8).value, all.value));
  EXPECT_FALSE(at::equal(argmax_examples(other_seed, 0, 8).value, all.value));
}

TEST(ArgmaxTask, ThreadsDoNotChangeTheData) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const ArgmaxBatch one = argmax_examples(small(), 0, 16);
  at::set_num_threads(2);
  const ArgmaxBatch two = argmax_examples(small(), 0, 16);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one.value, two.value));
}

TEST(ArgmaxTask, TrainingExamplesAreCycledAndNeverValidationExamples) {
  ArgmaxConfig config = small();
  config.train_examples = 48;
  EXPECT_TRUE(at::equal(argmax_train_batch(config, 0).value, argmax_train_batch(config, 3).value));
  EXPECT_FALSE(at::equal(argmax_train_batch(config, 0).value, argmax_train_batch(config, 1).value));
  const at::Tensor validation = argmax_examples(config, config.train_examples, 16).value;
  for (int64_t step = 0; step < 4; ++step) EXPECT_FALSE(at::equal(argmax_train_batch(config, step).value, validation));
}

TEST(ArgmaxTask, IndexAccuracyCountsNearestWinners) {
  const ArgmaxBatch batch = argmax_examples(small(), 0, 8);
  EXPECT_EQ(index_accuracy(batch.target, batch), 1);
  EXPECT_EQ(index_accuracy(batch.target - 0.3, batch), 1);  // still far from every loser
  EXPECT_EQ(index_accuracy(at::zeros_like(batch.target), batch), 0);
  at::Tensor half = batch.target.clone();
  half.narrow(1, 0, 12).zero_();
  EXPECT_EQ(index_accuracy(half, batch), 0.5);
}

}  // namespace
}  // namespace fem
