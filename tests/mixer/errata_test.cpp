// What the paper prints of the layer and does not hold (docs/notation.md has the list).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

class ErrataInDialect : public ::testing::TestWithParam<Dialect> {
 protected:
  // A layer that shows its read: as many channels as outputs, no outer gate, W_o the identity.
  FreeEnergyMixer open_layer(bool conditioned) {
    MixerOptions options = small_options();
    options.dialect = GetParam();
    options.fem_ratio = 1;
    options.use_outer_gate = false;
    options.use_conv = conditioned;
    FreeEnergyMixer mixer = random_mixer(options);
    const at::NoGradGuard no_gradients;
    mixer->weights.output.weight.copy_(at::eye(options.n_embd));
    mixer->weights.output.bias.zero_();
    return mixer;
  }
};
INSTANTIATE_TEST_SUITE_P(Layer, ErrataInDialect, ::testing::ValuesIn(all_dialects()),
                         [](const auto& info) { return spelled(info.param); });

// K: softplus(x + 1.8) at x = 0 is said to be "around 1". It is 1.953.
TEST_P(ErrataInDialect, BetaStartsNearTwo) {
  FreeEnergyMixer mixer = open_layer(false);
  const at::NoGradGuard no_gradients;
  for (LinearWeights& layer : mixer->weights.prior) {  // an even prior
    layer.weight.zero_();
    layer.bias.zero_();
  }
  mixer->weights.value.weight.copy_(at::eye(16));
  mixer->weights.value.bias.zero_();
  mixer->weights.temperature_gate.bias.fill_(1e4);  // the free energy
  mixer->weights.temperature_gate.weight.zero_();
  mixer->weights.beta_param.copy_(FreeEnergyMixer(mixer->options)->weights.beta_param);
  const at::Tensor x = at::cat({at::zeros({1, 1, 16}, at::kDouble), at::ones({1, 1, 16}, at::kDouble)}, 1);
  const at::Tensor read = mixer(x).select(1, 1).flatten();  // of the values 0 and 1
  const auto free_energy = [](double beta) { return std::log((1 + std::exp(beta)) / 2) / beta; };
  EXPECT_TRUE(close(read, at::full({16}, free_energy(1.953), at::kDouble), {1e-4}));
  EXPECT_GT(read.min().item<double>(), free_energy(1.0) + 0.05);
}

// 34d: lambda (1 + c) may leave [0, 1], where F.2 knows no temperature. The other dialects change lambda inside its
// sigmoid.
TEST_P(ErrataInDialect, OnlyTheGateAsPrintedLeavesTheUnitInterval) {
  at::manual_seed(8);
  FreeEnergyMixer mixer = open_layer(true);
  const MixerSizes sizes = sizes_of(mixer->options);
  const at::Tensor x = random_tokens(2, 12, mixer->options);
  const at::NoGradGuard no_gradients;
  const at::Tensor read = mixer(x);
  mixer->weights.temperature_gate.weight.zero_();
  mixer->weights.temperature_gate.bias.fill_(-1e4);
  mixer->weights.forward.out_proj.slice(1, sizes.value + 2 * sizes.key, 2 * sizes.value + 2 * sizes.key).zero_();
  const at::Tensor mean = mixer(x);
  mixer->weights.temperature_gate.bias.fill_(1e4);
  const at::Tensor free_energy = mixer(x);
  // The first token has no spread, and no gate to see.
  const at::Tensor lambda = ((read - mean) / (free_energy - mean)).slice(1, 1);
  const at::Tensor outside = lambda.lt(-1e-6).logical_or(lambda.gt(1 + 1e-6));
  EXPECT_EQ(outside.any().item<bool>(), GetParam() == Dialect::kPaper);
  EXPECT_TRUE(free_energy.slice(1, 1).gt(mean.slice(1, 1)).all().item<bool>());
}

int64_t parameters_of(const MixerOptions& options) {
  int64_t count = 0;
  for (const ParameterSpec& spec : mixer_parameters(options)) count += c10::multiply_integers(spec.shape);
  return count;
}

// K: the conditioner is said to be less than 1 % more parameters at H_c = d/16. The authors' code has 64.
TEST(Errata, TheConditionerIsFivePercentOfTheMixer) {
  for (const auto& [width, at_64] : {std::pair{512, 0.20}, std::pair{768, 0.14}, std::pair{1024, 0.10}}) {
    MixerOptions options;
    options.n_embd = width;
    options.n_head = 8;
    options.dialect = Dialect::kPaper;
    MixerOptions authors = options, without = options;
    authors.conv_hidden = 64;
    without.use_conv = false;
    const auto bare = static_cast<double>(parameters_of(without));
    const auto more = static_cast<double>(parameters_of(options)) - bare;
    EXPECT_NEAR(more / bare, 0.05, 0.005) << width;
    EXPECT_NEAR(more / (bare + 8.0 * width * width), 0.017, 0.001) << width << ", with an MLP of width 4 D";
    EXPECT_NEAR((static_cast<double>(parameters_of(authors)) - bare) / bare, at_64, 0.01) << width;
  }
}

// H.7 (ii): queries and keys "of width d/2". The budget of 4 D^2 is met with d each.
TEST(Errata, TheBalancedBudgetHasQueriesAndKeysAsWideAsValues) {
  MixerOptions options;
  options.n_embd = 384;
  options.n_head = 8;
  options.fem_ratio = 2.0 / 3;
  options.p_t_to_fem_ratio = 2;
  options.use_conv = options.bias = false;
  const MixerSizes sizes = sizes_of(options);
  EXPECT_EQ(sizes.key, sizes.value);
  EXPECT_EQ(parameters_of(options) - sizes.value, 4 * 384 * 384) << "all but _beta_param";
  options.qk_dim = sizes.value / 2;
  EXPECT_EQ(parameters_of(options) - sizes.value, 10 * 384 * 384 / 3);
}

}  // namespace
}  // namespace fem::testing
