// What each prior is, seen from the layer.
#include <ATen/ATen.h>

#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;
using testing::random_mixer;
using testing::random_tokens;
using testing::small_options;

MixerOptions options_with(PriorType prior) {
  MixerOptions options = small_options();
  options.prior_type = prior;
  return options;
}

// Copies the parameters that both have.
void copy_common(FreeEnergyMixer& to, const FreeEnergyMixer& from) {
  const at::NoGradGuard no_gradients;
  const auto source = from->named_parameters();
  for (auto& parameter : to->named_parameters())
    if (source.contains(parameter.key()) && source[parameter.key()].sizes() == parameter->sizes())
      parameter->copy_(source[parameter.key()]);
}

TEST(Priors, GlaThatForgetsNothingIsLinear) {
  MixerOptions gla = options_with(PriorType::kGla), linear = options_with(PriorType::kLinear);
  gla.use_conv = linear.use_conv = false;
  FreeEnergyMixer decaying = random_mixer(gla), plain(linear);
  plain->to(at::kDouble);
  copy_common(plain, decaying);
  const at::Tensor x = random_tokens(2, 30, gla);
  EXPECT_FALSE(at::allclose(decaying(x), plain(x)));
  const at::NoGradGuard no_gradients;
  decaying->named_parameters()["W_decay.weight"].zero_();
  decaying->named_parameters()["W_decay.bias"].fill_(-60);
  EXPECT_TRUE(close(decaying(x), plain(x), testing::kFloat64));
}

TEST(Priors, RnnSoftmaxWithEqualKeysIsTheRunningMean) {
  MixerOptions options = options_with(PriorType::kRnnSoftmax);
  options.use_conv = options.use_lse = options.use_temperature = options.use_outer_gate = false;
  options.use_rope = false;
  options.fem_ratio = 1;
  FreeEnergyMixer mixer = random_mixer(options);
  const at::NoGradGuard no_gradients;
  auto parameters = mixer->named_parameters();
  for (const char* name : {"W_k.weight", "W_q.weight", "W_q.bias", "W_o.bias"}) parameters[name].zero_();
  parameters["W_o.weight"].copy_(at::eye(options.n_embd));
  const at::Tensor x = random_tokens(2, 20, options);
  const at::Tensor value = at::linear(x, parameters["W_v.weight"], parameters["W_v.bias"]);
  const at::Tensor mean = value.cumsum(1) / at::arange(1, 21, at::kDouble).view({1, -1, 1});
  EXPECT_TRUE(close(mixer(x), mean, testing::kFloat64)) << "equal queries make a gate of 1";
}

TEST(Priors, DecaysStartWithHalfLivesFrom8To1024Tokens) {
  for (const PriorType prior : {PriorType::kGla, PriorType::kRnnDecay}) {
    MixerOptions options = options_with(prior);
    FreeEnergyMixer mixer(options);
    const at::Tensor bias = mixer->named_parameters()["W_decay.bias"].to(at::kDouble);
    const at::Tensor half_life = std::log(2.0) / at::softplus(bias);
    EXPECT_NEAR(half_life[0].item<double>(), 8, 1e-4);
    EXPECT_NEAR(half_life[-1].item<double>(), 1024, 0.01);
    const at::Tensor ratio = half_life.slice(0, 1) / half_life.slice(0, 0, -1);
    EXPECT_TRUE(at::allclose(ratio, ratio[0].expand_as(ratio), 1e-4));
  }
  MixerOptions reference = options_with(PriorType::kGla);
  reference.dialect = Dialect::kReference;
  EXPECT_TRUE((FreeEnergyMixer(reference)->named_parameters()["W_decay.bias"] == 0).all().item<bool>());
}

TEST(Priors, MambaStartsWithStepsFromAThousandthToATenth) {
  MixerOptions options = options_with(PriorType::kMamba);
  const int64_t value = sizes_of(options).value;
  const at::Tensor bias = FreeEnergyMixer(options)->named_parameters()["W_p.bias"];
  const at::Tensor step = at::softplus(bias.slice(0, 0, value).to(at::kDouble));
  EXPECT_NEAR(step[0].item<double>(), 0.001, 1e-8);
  EXPECT_NEAR(step[-1].item<double>(), 0.1, 1e-6);
  EXPECT_TRUE((bias.slice(0, value) == 0).all().item<bool>());
}

// A mamba layer whose output is its read: V = 8 channels a head, mean or free energy by the inner gate.
struct OpenMamba {
  explicit OpenMamba(bool interact, bool normalize = true) {
    MixerOptions options = options_with(PriorType::kMamba);
    options.fem_ratio = 1;
    options.ssm_rank = 3;
    options.use_conv = options.use_outer_gate = false;
    options.mamba_interact = interact;
    options.mamba_normalize = normalize;
    mixer = random_mixer(options);
    const at::NoGradGuard no_gradients;
    auto parameters = mixer->named_parameters();
    parameters["W_o.weight"].copy_(at::eye(options.n_embd));
    parameters["W_o.bias"].zero_();
    parameters["W_lambda.weight"].zero_();
  }
  at::Tensor read(const at::Tensor& x, bool free_energy) {
    const at::NoGradGuard no_gradients;
    mixer->named_parameters()["W_lambda.bias"].fill_(free_energy ? 1e4 : -1e4);
    return mixer(x).unflatten(-1, {mixer->options.n_head, -1});
  }
  FreeEnergyMixer mixer{nullptr};
};

TEST(Priors, MambaInteractingChoosesAmongPairsOfTokenAndChannel) {
  at::manual_seed(2);
  OpenMamba plain(false), mixed(true);
  copy_common(mixed.mixer, plain.mixer);
  const at::Tensor x = random_tokens(2, 12, plain.mixer->options);
  const auto parameters = mixed.mixer->named_parameters();
  const at::Tensor beta = (at::softplus(parameters["_beta_param"]) + 1e-6).view({2, 8});
  const at::Tensor weights = parameters["W_interact"].softmax(-1);
  EXPECT_TRUE(close(weights.sum(-1), at::ones({2, 8}, at::kDouble), testing::kFloat64));
  const at::Tensor mean = plain.read(x, false), free_energy = plain.read(x, true);
  at::Tensor expected_mean = at::zeros_like(mean), expected_energy = at::zeros_like(mean);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t j = 0; j < 8; ++j)
      for (int64_t c = 0; c < 8; ++c) {
        expected_mean.select(2, h).select(-1, j) +=
            weights[h][j][c] * beta[h][c] / beta[h][j] * mean.select(2, h).select(-1, c);
        expected_energy.select(2, h).select(-1, j) +=
            weights[h][j][c] * (beta[h][c] * free_energy.select(2, h).select(-1, c)).exp();
      }
  EXPECT_TRUE(close(mixed.read(x, false), expected_mean, testing::kFloat64));
  EXPECT_TRUE(close(mixed.read(x, true), expected_energy.log() / beta, testing::kFloat64));
  EXPECT_TRUE(mixed.read(x, true).ge(mixed.read(x, false) - 1e-12).all().item<bool>()) << "still mean <= F";
}

TEST(Priors, MambaUnnormalisedReadsScores) {
  at::manual_seed(3);
  OpenMamba normalised(false), scores(false, false);
  copy_common(scores.mixer, normalised.mixer);
  const at::Tensor x = random_tokens(2, 12, scores.mixer->options);
  const at::Tensor total = scores.read(x, false) / normalised.read(x, false);
  const at::Tensor beta = (at::softplus(scores.mixer->named_parameters()["_beta_param"]) + 1e-6).view({2, 8});
  EXPECT_TRUE(total.gt(0).all().item<bool>());
  EXPECT_TRUE(close(scores.read(x, true), normalised.read(x, true) + total.log() / beta, testing::kFloat64));
}

}  // namespace
}  // namespace fem
