#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tasks/argmax/examples.h"

namespace fem {
namespace {

ArgmaxOptions small() { return {.dim = 24, .length = 40}; }

ArgmaxBatch examples(int64_t first, int64_t count) { return argmax_examples(small(), 0, {first, count}); }

TEST(ArgmaxTask, WinnerHoldsTheLargestValueOfItsChannel) {
  const ArgmaxBatch batch = examples(0, 64);
  EXPECT_TRUE(at::equal(batch.value.argmax(1), batch.winner));
  EXPECT_TRUE(at::equal(std::get<0>(batch.value.max(1)), batch.target));
}

TEST(ArgmaxTask, ValuesHaveTheStatedDistribution) {
  const ArgmaxBatch batch = examples(0, 400);
  const at::Tensor noise = batch.value.to(at::kDouble).scatter(1, batch.winner.unsqueeze(1), 0.0);
  const double count = static_cast<double>(noise.numel() - batch.winner.numel());
  EXPECT_NEAR(noise.sum().item<double>() / count, 0, 5 * 0.05 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(noise.square().sum().item<double>() / count), 0.05, 5 * 0.05 / std::sqrt(2 * count));
  const double winners = static_cast<double>(batch.target.numel());
  EXPECT_NEAR(batch.target.to(at::kDouble).mean().item<double>(), 1, 5 * 0.05 / std::sqrt(winners));
  EXPECT_NEAR(batch.target.to(at::kDouble).std().item<double>(), 0.05, 5 * 0.05 / std::sqrt(2 * winners));
}

TEST(ArgmaxTask, WinnersAreUniformOverTokens) {
  const ArgmaxOptions config = small();
  const ArgmaxBatch batch = examples(0, 1000);
  const at::Tensor counts = at::bincount(batch.winner.flatten(), {}, config.length).to(at::kDouble);
  const double expected = static_cast<double>(batch.winner.numel()) / config.length;
  // Chi-square with 39 degrees of freedom: mean 39, standard deviation 8.8.
  EXPECT_LT(((counts - expected).square() / expected).sum().item<double>(), 39 + 5 * 8.8);
}

TEST(ArgmaxTask, ExampleDependsOnSeedAndIndexAlone) {
  const ArgmaxBatch all = examples(0, 8), tail = examples(5, 3);
  EXPECT_TRUE(at::equal(all.value.narrow(0, 5, 3), tail.value));
  EXPECT_TRUE(at::equal(all.winner.narrow(0, 5, 3), tail.winner));
  const ArgmaxBatch strided = argmax_examples(small(), 0, {1, 3, 2});
  EXPECT_TRUE(at::equal(strided.value, all.value.index_select(0, at::tensor({1, 3, 5}))));

  ArgmaxOptions other_mixer = small();
  other_mixer.mixer = ArgmaxMixer::kMean;
  EXPECT_TRUE(at::equal(argmax_examples(other_mixer, 0, {0, 8}).value, all.value));
  EXPECT_FALSE(at::equal(argmax_examples(small(), 1, {0, 8}).value, all.value));
}

TEST(ArgmaxTask, ThreadsDoNotChangeTheData) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const ArgmaxBatch one = examples(0, 16);
  at::set_num_threads(2);
  const ArgmaxBatch two = examples(0, 16);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one.value, two.value));
}

TEST(ArgmaxTask, TrainingExamplesAreCycledAndNeverValidationExamples) {
  ArgmaxOptions options = small();
  options.train_examples = 50;  // three batches of 16, and two that are never a whole one
  const auto batch = [&](int64_t step) { return argmax_train_rows(options, 0, 16, {16 * step, 16}).value; };
  EXPECT_TRUE(at::equal(batch(0), batch(3)));
  EXPECT_FALSE(at::equal(batch(0), batch(1)));
  EXPECT_TRUE(at::equal(batch(0), examples(0, 16).value));
  const at::Tensor validation = argmax_examples(options, 0, {options.train_examples, 16}).value;
  for (int64_t step = 0; step < 4; ++step) EXPECT_FALSE(at::equal(batch(step), validation));
}

TEST(ArgmaxTask, IndexAccuracyCountsNearestWinners) {
  const ArgmaxBatch batch = examples(0, 8);
  const int64_t all = 8 * 24;
  EXPECT_EQ(channels_found(batch.target, batch), all);
  EXPECT_EQ(channels_found(batch.target - 0.3, batch), all);  // still far from every loser
  EXPECT_EQ(channels_found(at::zeros_like(batch.target), batch), 0);
  at::Tensor half = batch.target.clone();
  half.narrow(1, 0, 12).zero_();
  EXPECT_EQ(channels_found(half, batch), all / 2);
}

}  // namespace
}  // namespace fem
