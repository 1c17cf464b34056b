#include "bench/work.h"

#include <gtest/gtest.h>

namespace fem::bench {
namespace {

// D 4, one head, T 2: three pairs of tokens.
const Shape kShape{"", 4, 1, 2, 1};

MixerOptions options_of(PriorType prior, bool conditioner) {
  MixerOptions options;
  options.n_embd = 8;
  options.n_head = 1;
  options.prior_type = prior;
  options.use_conv = conditioner;
  return options;
}

TEST(Work, AttentionIsTwoProductsOverTheCausalPairs) {
  const Flops flops = attention_flops(kShape);
  EXPECT_EQ(flops.forward, 3 * 2 * (4 + 4));
  EXPECT_EQ(flops.backward, 3 * 2 * 5 * 4);
  EXPECT_EQ(attention_flops({"", 8, 2, 2, 3}).forward, 3 * 2 * flops.forward);  // batch x heads
}

TEST(Work, SoftmaxReadSumsTwoStreams) {
  const Flops flops = read_flops(PriorType::kSoftmax, kShape, {.key = 4, .value = 3});
  EXPECT_EQ(flops.forward, 3 * 2 * (4 + 6));
  EXPECT_EQ(flops.backward, 3 * 2 * (3 * 4 + 2 * 6));
}

TEST(Work, LinearReadGrowsWithTheTokens) {
  const Head head{.key = 4, .value = 3};
  const Flops flops = read_flops(PriorType::kGla, kShape, head);
  EXPECT_EQ(flops.forward, 2 * 2 * 2 * (4 * 7));
  EXPECT_EQ(flops.backward, 5 * 2 * 2 * (4 * 7));
  EXPECT_EQ(flops.training(), flops.forward + flops.backward);
  EXPECT_EQ(read_flops(PriorType::kLinear, kShape, head).forward, flops.forward);
}

TEST(Work, WithoutAFreeEnergyOneStreamIsSummed) {
  const Head head{.key = 4, .value = 3};
  EXPECT_EQ(read_flops(PriorType::kSoftmax, kShape, head, false).forward, 3 * 2 * (4 + 3));
  EXPECT_EQ(read_flops(PriorType::kGla, kShape, head, false).forward, 2 * 2 * 2 * (4 * 4));
  MixerOptions options = options_of(PriorType::kSoftmax, false);
  const int64_t both = mixer_flops(options, {"", 8, 1, 2, 1}).forward;
  options.use_lse = options.use_temperature = false;  // no inner gate either: a matrix 8 x 4 less
  EXPECT_EQ(both - mixer_flops(options, {"", 8, 1, 2, 1}).forward, 3 * 2 * 4 + 2 * 2 * (8 * 4));
}

TEST(Work, ElementwiseReadsAreNotCounted) {
  for (const PriorType prior : {PriorType::kRnnSoftmax, PriorType::kRnnDecay, PriorType::kMamba})
    EXPECT_EQ(read_flops(prior, kShape, {4, 3}).training(), 0);
}

TEST(Work, AttentionLayerHasFourProjections) {
  const Flops flops = attention_layer_flops(kShape), read = attention_flops(kShape);
  EXPECT_EQ(flops.forward, 2 * 2 * (4 * 4 * 4) + read.forward);
  EXPECT_EQ(flops.training(), 3 * 2 * 2 * (4 * 4 * 4) + read.training());
}

// D 8, E 4: W_q, W_k 8 x 8; W_v, W_o, W_lambda, W_gate 8 x 4. Conditioner: three 8 x 64 and 64 x (2 x 8 + 3 x 4).
TEST(Work, MixerHasAsManyProjectionsAsAttentionAndTheConditioner) {
  const Shape shape{"", 8, 1, 2, 1};
  const Flops plain = mixer_flops(options_of(PriorType::kSoftmax, false), shape);
  EXPECT_EQ(plain.forward, attention_layer_flops(shape).forward);
  EXPECT_EQ(plain.training(), attention_layer_flops(shape).training());
  const Flops whole = mixer_flops(options_of(PriorType::kSoftmax, true), shape);
  EXPECT_EQ(whole.forward - plain.forward, 2 * 2 * (3 * 8 * 64 + 64 * 28));
  EXPECT_EQ(whole.training() - plain.training(), 3 * 2 * 2 * (3 * 8 * 64 + 64 * 28));
}

// W_p 8 x (4 + 2 x 16) and four of 8 x 4; A_log [4, 16] is no factor.
TEST(Work, MambaLayerCountsItsProjectionsOnly) {
  const Flops flops = mixer_flops(options_of(PriorType::kMamba, false), {"", 8, 1, 2, 1});
  EXPECT_EQ(flops.forward, 2 * 2 * (8 * 36 + 4 * 8 * 4));
}

TEST(Work, StepReadsWeightsOnceAndThePast) {
  const Shape shape{"", 8, 1, 10, 3};
  const Cost attention = attention_step_cost(shape, 1000);
  EXPECT_EQ(attention.flops, 3 * (2 * 4 * 8 * 8 + 11 * 2 * (8 + 8)));
  EXPECT_EQ(attention.bytes, 4 * (4 * 8 * 8 + 4 * 8) + 1000);

  // Biases: 8 of W_o, 2 x 8 of W_q and W_k, 3 x 4; beta: 4.
  const Cost softmax = mixer_step_cost(options_of(PriorType::kSoftmax, false), shape, 1000);
  EXPECT_EQ(softmax.flops, attention.flops);
  EXPECT_EQ(softmax.bytes, 4 * (4 * 8 * 8 + 8 + 16 + 12 + 4) + 1000);

  const Cost linear = mixer_step_cost(options_of(PriorType::kLinear, false), shape, 1000);
  EXPECT_EQ(linear.flops, 3 * (2 * 4 * 8 * 8 + 2 * 2 * 8 * (2 * 4 + 1)));
  EXPECT_EQ(linear.bytes, softmax.bytes + 1000);  // sums are written as well
}

}  // namespace
}  // namespace fem::bench
