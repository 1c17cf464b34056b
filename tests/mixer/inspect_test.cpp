// What inspect tells is what the layer did: its numbers, put together again, are the layer's output.
#include "fem/inspect.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fem/energy.h"
#include "mixer/hidden_temperature.h"
#include "mixer/queries_and_keys.h"
#include "mixer/random_mixer.h"
#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;
using testing::fails_with;
using testing::random_mixer;
using testing::random_tokens;
using testing::small_options;

constexpr int64_t kTokens = 11;
const std::vector<int64_t> kChosen{0, 3, 7, 10};

at::Tensor indices(const std::vector<int64_t>& positions) { return at::tensor(positions, at::kLong); }

// A mixer whose output is all in its read: the factor that rnn_softmax takes from the query is made 1.
FreeEnergyMixer mixer_without_factor(const MixerOptions& options, at::ScalarType dtype = at::kDouble) {
  FreeEnergyMixer mixer = random_mixer(options, dtype);
  const at::NoGradGuard no_gradients;
  if (options.prior_type == PriorType::kRnnSoftmax)
    for (auto& named : mixer->named_parameters())
      if (named.key().rfind("W_q", 0) == 0) named.value().zero_();
  return mixer;
}

at::Tensor output_of(const Inspection& i, const MixerWeights& w) {
  const at::Tensor gated = (i.gated * i.outer_gate).flatten(2);
  return at::matmul(gated, w.output.weight.to(at::kDouble).t()) + w.output.bias.to(at::kDouble);
}

// v of the tokens that are seen, from q = p e^{beta (v - F)}.
at::Tensor values_of(const Inspection& i) {
  const at::Tensor v = (i.posterior / i.prior).log() / i.beta.unsqueeze(-1) + i.free_energy.unsqueeze(-1);
  return at::where(i.prior > 0, v, 0.0);
}

void expect_identities(const Inspection& i) {
  const at::Tensor one = at::ones({1}, at::kDouble);
  EXPECT_TRUE(at::allclose(i.prior.sum(-1), one, 0, 1e-12));
  EXPECT_TRUE(at::allclose(i.posterior.sum(-1), one, 0, 1e-12));
  EXPECT_TRUE(at::allclose(i.free_energy, i.mean + i.kl_pq / i.beta, 1e-9, 1e-9));
  const at::Tensor v = values_of(i);
  EXPECT_TRUE(at::allclose(i.free_energy, (i.posterior * v).sum(-1) - i.kl_qp / i.beta, 1e-9, 1e-9));
  EXPECT_TRUE(i.kl_pq.ge(-1e-12).all().item<bool>() && i.kl_qp.ge(-1e-12).all().item<bool>());

  // F at the hidden temperature is what the gate lets through. Where no value reaches so far there is none.
  const at::Tensor b = i.hidden_beta, known = b.isnan().logical_not();
  const at::Tensor at_hidden = at::where(
      b == 0, i.mean, (i.prior * (b.unsqueeze(-1) * (v - i.mean.unsqueeze(-1))).exp()).sum(-1).log() / b + i.mean);
  EXPECT_TRUE(at::allclose(at_hidden.index({known}), i.gated.index({known}), 1e-8, 1e-8));
  const at::Tensor inside = i.lambda.ge(0).logical_and(i.lambda <= 1);
  EXPECT_TRUE(known.logical_or(inside.logical_not()).all().item<bool>());
  EXPECT_TRUE(at::where(inside, b.ge(0).logical_and(b <= i.beta * (1 + 1e-9)), true).all().item<bool>());
  const at::Tensor unseen = i.prior.eq(0).expand_as(v);
  const at::Tensor beyond = i.gated.ge(v.masked_fill(unseen, -INFINITY).amax(-1) - 1e-12)
                                .logical_or(i.gated <= v.masked_fill(unseen, INFINITY).amin(-1) + 1e-12);
  EXPECT_TRUE(known.logical_or(beyond).all().item<bool>());
}

class Inspected : public ::testing::TestWithParam<testing::PriorInDialect> {
 protected:
  static MixerOptions options_with(bool causal) {
    at::manual_seed(3);
    MixerOptions options = small_options();
    std::tie(options.prior_type, options.dialect) = GetParam();
    options.causal = causal;
    options.ssm_rank = 3;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Prior, Inspected, testing::every_prior_in_every_dialect(),
                         [](const auto& info) { return testing::name_of(info.param); });

TEST_P(Inspected, PutTogetherIsTheLayersOutput) {
  for (const bool causal : {true, false}) {
    const MixerOptions options = options_with(causal);
    FreeEnergyMixer mixer = mixer_without_factor(options);
    const at::Tensor x = random_tokens(2, kTokens, options);
    const Inspection i = mixer->inspect(x, kChosen);
    EXPECT_TRUE(close(output_of(i, mixer->weights), mixer(x).index_select(1, indices(kChosen)), testing::kFloat64));
    expect_identities(i);
  }
}

TEST_P(Inspected, SeesNeitherPaddingNorNeighbours) {
  for (const bool causal : {true, false}) {
    const MixerOptions options = options_with(causal);
    FreeEnergyMixer mixer = mixer_without_factor(options);
    const at::Tensor x = random_tokens(1, kTokens, options);
    const auto expect_same = [&](const Inspection& i, const at::Tensor& alone, int64_t first) {
      EXPECT_TRUE(close(output_of(i, mixer->weights), alone, testing::kFloat64));
      EXPECT_TRUE(i.prior.slice(-1, 0, first).eq(0).all().item<bool>());
      expect_identities(i);
    };
    const int64_t padding = 4;
    at::Tensor padded = at::cat({at::full({1, padding, options.n_embd}, NAN, at::kDouble), x}, 1);
    const at::Tensor mask = at::arange(padding + kTokens).ge(padding).unsqueeze(0);
    const at::Tensor alone = mixer(x).index_select(1, indices({2, 6}));
    expect_same(mixer->inspect(padded, {padding + 2, padding + 6}, {.mask = mask}), alone, padding);

    const at::Tensor before = random_tokens(1, padding, options), after = random_tokens(1, 3, options);
    const at::Tensor borders = at::tensor({int64_t{0}, padding, padding + kTokens, padding + kTokens + 3});
    const Inspection packed = mixer->inspect(at::cat({before, x, after}, 1), {padding + 2, padding + 6},
                                             {.mask = std::nullopt, .cu_seqlens = borders});
    expect_same(packed, alone, padding);
    EXPECT_TRUE(packed.prior.slice(-1, padding + kTokens).eq(0).all().item<bool>());
  }
}

TEST(Inspections, OfWindowsSlopesAndOtherLettersAreTheLayers) {
  for (const bool causal : {true, false})
    for (const auto& change : std::vector<std::function<void(MixerOptions&)>>{
             [](MixerOptions& o) { o.window = 3; }, [](MixerOptions& o) { o.use_alibi = true; },
             [](MixerOptions& o) { o.use_inner_gate = false; }, [](MixerOptions& o) { o.use_outer_gate = false; },
             [](MixerOptions& o) { o.use_temperature = false; }, [](MixerOptions& o) { o.use_conv = false; },
             [](MixerOptions& o) { o.use_rope = false; }}) {
      at::manual_seed(4);
      MixerOptions options = small_options();
      options.causal = causal;
      change(options);
      FreeEnergyMixer mixer = random_mixer(options);
      const at::Tensor x = random_tokens(1, kTokens, options);
      const Inspection i = mixer->inspect(x, kChosen);
      EXPECT_TRUE(close(output_of(i, mixer->weights), mixer(x).index_select(1, indices(kChosen)), testing::kFloat64));
      expect_identities(i);
    }
}

TEST(Inspections, OfMeansAreAttention) {
  at::manual_seed(5);
  MixerOptions options = small_options();
  options.use_lse = options.use_temperature = false;
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(1, kTokens, options);
  const Inspection i = mixer->inspect(x, kChosen);
  EXPECT_TRUE(close(output_of(i, mixer->weights), mixer(x).index_select(1, indices(kChosen)), testing::kFloat64));
  EXPECT_TRUE(at::allclose(i.rank, at::ones_like(i.rank), 0, 1e-5));
  EXPECT_TRUE(i.posterior.equal(i.prior.expand_as(i.posterior)) && i.choice.equal(i.prior_choice));
  for (const at::Tensor& zero : {i.kl_pq, i.kl_qp, i.lambda, i.hidden_beta, i.beta})
    EXPECT_TRUE(zero.eq(0).all().item<bool>());
}

TEST(Inspections, RanksGrowWithWhatChannelsChoose) {
  at::manual_seed(6);
  MixerOptions options = small_options();
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(1, kTokens, options);
  const Inspection i = mixer->inspect(x, {0, 1, 10});
  EXPECT_TRUE(at::allclose(i.prior_rank, at::ones_like(i.rank), 0, 1e-5));
  const at::Tensor rank = i.rank.select(0, 0);
  EXPECT_TRUE(at::allclose(rank[0], at::ones({2}, at::kDouble), 0, 1e-5));  // one token: nothing to choose
  EXPECT_TRUE(rank[1].le(2 + 1e-9).all().item<bool>());
  EXPECT_TRUE(rank[2].gt(1.05).all().item<bool>() && rank[2].le(4 + 1e-9).all().item<bool>());  // 4 channels a head
  EXPECT_TRUE(i.choice.eq(i.posterior.argmax(-1)).all().item<bool>());
}

TEST(Inspections, CountValuesAtTheCap) {
  at::manual_seed(7);
  MixerOptions options = small_options();
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(1, kTokens, options);
  EXPECT_TRUE(mixer->inspect(x, {0}).capped.eq(0).all().item<bool>());
  {
    const at::NoGradGuard no_gradients;
    mixer->named_parameters()["W_v.weight"].zero_();
    mixer->named_parameters()["W_v.bias"].fill_(1).slice(0, 0, 1).fill_(1000);
    for (auto& named : mixer->named_parameters())
      if (named.key().find("out_proj") != std::string::npos) named.value().zero_();
  }
  const at::Tensor capped = mixer->inspect(x, {0}).capped.flatten();
  EXPECT_EQ(capped[0].item<double>(), 1);
  EXPECT_TRUE(capped.slice(0, 1).eq(0).all().item<bool>());
}

TEST(Inspections, HaveTheEnergyOfTheirKeys) {
  at::manual_seed(8);
  const MixerOptions options = small_options();
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(2, kTokens, options);
  const Inspection i = mixer->inspect(x, kChosen);
  const QueryAndKey asked = softmax_queries_and_keys(x, mixer->weights, options);
  const EnergyOptions products{.potential = Potential::kProduct};
  const auto of_chosen = [](const at::Tensor& all) { return all.index_select(1, indices(kChosen)); };
  EXPECT_TRUE(close(i.energy, of_chosen(energy(asked.query, asked.key, products)), testing::kFloat64));
  EXPECT_TRUE(close(i.energy_gradient, of_chosen(energy_gradient(asked.query, asked.key, products).norm(2, -1)),
                    testing::kFloat64));
  MixerOptions gla = options;
  gla.prior_type = PriorType::kGla;
  EXPECT_FALSE(random_mixer(gla)->inspect(x, kChosen).energy.defined());
}

TEST(Inspections, AreInFloat64WhateverTheLayerIs) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::manual_seed(9);
    const MixerOptions options = small_options();
    FreeEnergyMixer mixer = random_mixer(options, dtype);
    const at::Tensor x = random_tokens(1, kTokens, options, dtype);
    const Inspection i = mixer->inspect(x, kChosen);
    EXPECT_EQ(i.posterior.scalar_type(), at::kDouble);
    mixer->to(at::kDouble);
    EXPECT_TRUE(
        output_of(i, mixer->weights).equal(output_of(mixer->inspect(x.to(at::kDouble), kChosen), mixer->weights)));
  }
}

TEST(Inspections, OfNothingAndOfWhatIsNotThere) {
  const MixerOptions options = small_options();
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(1, kTokens, options);
  EXPECT_EQ(mixer->inspect(x, {}).posterior.size(1), 0);
  EXPECT_TRUE(fails_with("inspect: expected positions from 0 to T - 1 = 10, got 11", [&] { mixer->inspect(x, {11}); }));
  EXPECT_TRUE(fails_with("got -1", [&] { mixer->inspect(x, {-1}); }));
  EXPECT_TRUE(
      fails_with("expected x of shape [B, T, D=16], got [1, 11, 8]", [&] { mixer->inspect(x.slice(2, 0, 8), {0}); }));
  const at::Tensor nobody = at::zeros({1, kTokens}, at::kBool);
  const Inspection empty = mixer->inspect(x, {4}, {.mask = nobody});
  EXPECT_TRUE(empty.choice.eq(-1).all().item<bool>() && empty.gated.eq(0).all().item<bool>());
  EXPECT_TRUE(empty.posterior.eq(0).all().item<bool>() && empty.hidden_beta.eq(0).all().item<bool>());
}

// Of two values 0 and 1 with weights 1 - w and w: F(b) = log(1 + w (e^b - 1)) / b.
TEST(HiddenTemperatures, OfTwoValues) {
  const double w = 0.2;
  const at::Tensor p = at::tensor({1 - w, w}, at::kDouble).view({1, 2});
  const at::Tensor v = at::tensor({0.0, 1.0}, at::kDouble).view({1, 2});
  const auto gap = [&](double b) { return std::log1p(w * std::expm1(b)) / b - w; };
  const auto hidden = [&](double wanted, double beta) {
    const auto one = [](double x) { return at::full({1}, x, at::kDouble); };
    return hidden_temperature(p, v, one(wanted / gap(beta)), one(beta)).item<double>();
  };
  for (const double b : {-20.0, -1.0, -1e-3, 1e-9, 1e-3, 0.5, 3.0, 30.0})
    for (const double beta : {0.1, 2.0, 50.0})
      EXPECT_NEAR(hidden(gap(b), beta), b, 1e-6 * std::abs(b) + 1e-9) << b << " " << beta;
  EXPECT_EQ(hidden(0, 2), 0);
  EXPECT_TRUE(std::isnan(hidden(0.81, 2)));   // above the largest value
  EXPECT_TRUE(std::isnan(hidden(-0.21, 2)));  // below the smallest
}

}  // namespace
}  // namespace fem
