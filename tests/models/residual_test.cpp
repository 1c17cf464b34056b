// Residual rules: against goldens, where they must agree with each other, and around every mixer.
#include "models/residual.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "models/energy_golden.h"
#include "models/small_models.h"
#include "models/token_mixer.h"
#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;
using testing::energy_goldens;

constexpr double kNone = -std::numeric_limits<double>::infinity();  // the logit of a share of 0
double logit(double share) { return std::log(share / (1 - share)); }

const Residual& rule_of(ResidualRule rule) { return residual_of({.residual = rule}); }

std::vector<at::Tensor> coefficients(double decay, double rate, double look_ahead) {
  std::vector<at::Tensor> all;
  for (const double value : {decay, rate, look_ahead}) all.push_back(at::tensor({value}, at::kDouble));
  return all;
}

// One layer of the goldens: attention of the normed input, no MLP.
Stream layer(ResidualRule rule, const Stream& stream, const std::vector<at::Tensor>& coefficients) {
  const auto normed = [](const at::Tensor& x) {
    return x.defined() ? at::layer_norm(x, {x.size(1)}, {}, {}, 1e-5) : x;
  };
  const MixerInput in = rule_of(rule).input(stream, coefficients);
  const at::Tensor update = testing::golden_attention(energy_goldens(), {normed(in.x), normed(in.query)});
  return rule_of(rule).step(stream, update, coefficients);
}

Stream golden_stream() {
  const auto of = energy_goldens();
  return {of.at("X"), of.at("Vel")};
}

TEST(ResidualRules, AreTheGoldens) {
  const auto of = energy_goldens();
  ASSERT_EQ(of.size(), 70U);
  EXPECT_TRUE(close(testing::golden_attention(of, of.at("X")), of.at("out_mha"), testing::kFloat64));
  const std::vector<at::Tensor> given = coefficients(logit(0.6), 0.8, logit(0.5));
  for (const auto& [name, rule] : {std::pair{"mha", ResidualRule::kPlain},
                                   {"momen", ResidualRule::kMomentum},
                                   {"nag", ResidualRule::kNesterov},
                                   {"nag_qonly", ResidualRule::kNesterovQuery}}) {
    SCOPED_TRACE(name);
    const Stream next = layer(rule, golden_stream(), given);
    EXPECT_TRUE(close(next.x, of.at(std::string("layer_") + name + "_x"), testing::kFloat64));
    if (rule != ResidualRule::kPlain) {
      EXPECT_TRUE(close(next.velocity, of.at(std::string("layer_") + name + "_v"), testing::kFloat64));
    }
  }
}

TEST(ResidualRules, AgreeWhereTheirCoefficientsSayNothingElse) {
  const Stream moving = golden_stream(), at_rest{moving.x, {}};
  const at::Tensor plain = layer(ResidualRule::kPlain, moving, {}).x;
  const auto same = [](const at::Tensor& a, const at::Tensor& b) { return close(a, b, testing::kFloat64); };
  EXPECT_TRUE(same(layer(ResidualRule::kMomentum, moving, coefficients(kNone, 1, 0)).x, plain));
  EXPECT_TRUE(same(layer(ResidualRule::kNesterov, moving, coefficients(kNone, 1, kNone)).x, plain));
  const auto any = [](double look_ahead) { return coefficients(0.3, 0.7, look_ahead); };
  const at::Tensor momentum = layer(ResidualRule::kMomentum, moving, any(0)).x;
  EXPECT_TRUE(same(layer(ResidualRule::kNesterov, moving, any(kNone)).x, momentum));
  EXPECT_FALSE(same(layer(ResidualRule::kNesterov, moving, any(0)).x, momentum));
  EXPECT_TRUE(
      same(layer(ResidualRule::kNesterov, at_rest, any(0)).x, layer(ResidualRule::kMomentum, at_rest, any(0)).x));
  EXPECT_TRUE(same(layer(ResidualRule::kNesterovQuery, moving, any(kNone)).x, momentum));
  EXPECT_FALSE(same(layer(ResidualRule::kNesterovQuery, moving, any(0)).x, momentum));
  EXPECT_FALSE(
      same(layer(ResidualRule::kNesterovQuery, moving, any(0)).x, layer(ResidualRule::kNesterov, moving, any(0)).x));
  const auto gained = [&](double gain) {
    return layer(ResidualRule::kGain, moving, {at::tensor({gain}, at::kDouble)}).x;
  };
  EXPECT_TRUE(same(gained(1), plain));
  EXPECT_TRUE(same(gained(-2), moving.x - 2 * (plain - moving.x)));
}

using RuleAndMixer = std::tuple<ResidualRule, testing::MixerChoice>;

LanguageModelOptions options_with(const RuleAndMixer& choice) {
  LanguageModelOptions options = testing::random_model(std::get<1>(choice), 11)->options;
  options.residual = std::get<0>(choice);
  return options;
}

bool can_be(const RuleAndMixer& choice) {
  const LanguageModelOptions options = options_with(choice);
  return !residual_of(options).queries_apart() || token_mixer_of(options.block_mixer).queries_apart(options);
}

std::vector<RuleAndMixer> every_rule_and_mixer() {
  std::vector<RuleAndMixer> all;
  for (const auto& [name, rule] : Spelling<ResidualRule>::values)
    for (const testing::MixerChoice& mixer : testing::every_mixer()) all.emplace_back(rule, mixer);
  return all;
}

std::vector<RuleAndMixer> rules_around_mixers() {
  std::vector<RuleAndMixer> some;
  for (const RuleAndMixer& choice : every_rule_and_mixer())
    if (std::get<0>(choice) != ResidualRule::kPlain && can_be(choice)) some.push_back(choice);
  return some;
}

TEST(ResidualRules, QueriesAloneNeedAMixerThatHasThem) {
  std::set<std::string> with_queries;
  for (const RuleAndMixer& choice : every_rule_and_mixer()) {
    if (std::get<0>(choice) != ResidualRule::kNesterovQuery) continue;
    if (can_be(choice))
      with_queries.insert(testing::name_of(std::get<1>(choice)));
    else
      EXPECT_TRUE(testing::fails_with("residual = \"nesterov_query\" asks for queries alone ahead of x",
                                      [&] { LanguageModel model(options_with(choice)); }));
  }
  for (const char* name : {"attention", "diff_attention", "softmax", "linear", "gla"})
    EXPECT_EQ(with_queries.count(name), 1U) << name;
  for (const char* name : {"rnn_decay", "mamba", "hyena", "delta_net", "mamba2"})
    EXPECT_EQ(with_queries.count(name), 0U) << name;
}

// Queries of x A are those of x by other weights; everything else must not have seen x A.
TEST(ResidualRules, QueriesAloneAreMadeOfTheirInput) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({2, 9, 16}, at::kDouble), turned = at::randn({16, 16}, at::kDouble);
  for (const RuleAndMixer& choice : rules_around_mixers()) {
    if (std::get<0>(choice) != ResidualRule::kNesterovQuery) continue;
    SCOPED_TRACE(testing::name_of(std::get<1>(choice)));
    const LanguageModelOptions options = options_with(choice);
    const TokenMixer& mixer = token_mixer_of(options.block_mixer);
    std::vector<at::Tensor> weights, other;
    for (const ParameterSpec& spec : mixer.parameters(options, 0)) {
      weights.push_back(0.3 * at::randn(spec.shape, at::kDouble));
      const bool query = spec.name == "query.weight" || spec.name == "W_q.weight";
      other.push_back(query ? at::matmul(weights.back(), turned.t()) : weights.back());
    }
    const Mix mix = mixer.bind(options, 0, weights), mix_turned = mixer.bind(options, 0, other);
    const at::Tensor apart = mix({x, at::matmul(x, turned)}, {}, nullptr, false);
    EXPECT_TRUE(close(apart, mix_turned(x, {}, nullptr, false), testing::kFloat64));
    EXPECT_FALSE(close(apart, mix(x, {}, nullptr, false), testing::kFloat64));
    EXPECT_TRUE(close(mix({x, x}, {}, nullptr, false), mix(x, {}, nullptr, false), testing::kFloat64));
  }
}

TEST(ResidualRules, AMixerRefusesQueriesThatItCannotMake) {
  const MixerOptions options{.n_embd = 16, .n_head = 2, .prior_type = PriorType::kRnnDecay};
  const FreeEnergyMixer without(options), with(MixerOptions{.n_embd = 16, .n_head = 2});
  const at::Tensor x = at::randn({1, 3, 16});
  EXPECT_TRUE(testing::fails_with("mix: prior rnn_decay in dialect corrected makes no queries",
                                  [&] { mix({x, x}, without->weights, without->options); }));
  EXPECT_TRUE(
      testing::fails_with("mix: expected query", [&] { mix({x, x.slice(1, 1)}, with->weights, with->options); }));
}

class ResidualAroundMixers : public ::testing::TestWithParam<RuleAndMixer> {
 protected:
  static LanguageModel model() {
    at::manual_seed(7);
    LanguageModel model(options_with(GetParam()));
    const at::NoGradGuard no_gradients;
    for (at::Tensor& parameter : model->parameters()) parameter.normal_(0.0, 0.5);
    model->to(at::kDouble);
    return model;
  }
  static at::Tensor tokens() {
    at::manual_seed(3);
    return at::randint(11, {2, 9}, at::kLong);
  }
};
INSTANTIATE_TEST_SUITE_P(Rule, ResidualAroundMixers, ::testing::ValuesIn(rules_around_mixers()), [](const auto& info) {
  return spelled(std::get<0>(info.param)) + "_" + testing::name_of(std::get<1>(info.param));
});

// The velocity is of a token: nothing of it is kept between two calls.
TEST_P(ResidualAroundMixers, AnySplitIsTheWhole) {
  LanguageModel language_model = model();
  const at::Tensor text = tokens();
  const at::NoGradGuard no_gradients;
  const at::Tensor whole = language_model(text);
  for (const int64_t first : {1, 4, 8}) {
    BackboneState state;
    const at::Tensor begin = language_model->forward(text.slice(1, 0, first), state);
    const at::Tensor end = language_model->forward(text.slice(1, first), state);
    EXPECT_TRUE(close(at::cat({begin, end}, 1), whole, testing::kFloat64)) << first;
  }
}

TEST_P(ResidualAroundMixers, CoefficientsLearnAndRecomputedGradientsAreTheSame) {
  LanguageModel language_model = model();
  const auto gradients = [&](bool recompute) {
    language_model->zero_grad();
    language_model->recompute = recompute;
    language_model(tokens()).square().sum().backward();
    std::map<std::string, at::Tensor> all;
    for (const auto& parameter : language_model->named_parameters()) all[parameter.key()] = parameter->grad().clone();
    return all;
  };
  const auto kept = gradients(false), made_again = gradients(true);
  for (const auto& [name, gradient] : kept) EXPECT_TRUE(at::equal(gradient, made_again.at(name))) << name;
  EXPECT_NE(kept.at("blocks.0.residual.rate").item<double>(), 0);
  for (const char* name : {"decay", "look_ahead"}) {
    const auto first = kept.find(std::string("blocks.0.residual.") + name);
    if (first == kept.end()) continue;
    EXPECT_EQ(first->second.item<double>(), 0) << name;  // nothing came before it
    EXPECT_NE(kept.at(std::string("blocks.1.residual.") + name).item<double>(), 0) << name;
  }
  const ResidualRule rule = std::get<0>(GetParam());
  EXPECT_EQ(kept.count("blocks.1.residual.decay"), rule == ResidualRule::kGain ? 0U : 1U);
  EXPECT_EQ(kept.count("blocks.1.residual.look_ahead"),
            rule == ResidualRule::kNesterov || rule == ResidualRule::kNesterovQuery ? 1U : 0U);
}

TEST_P(ResidualAroundMixers, PaddingAndNeighboursAreNotSeen) {
  LanguageModel language_model = model();
  const at::NoGradGuard no_gradients;
  const at::Tensor text = tokens(), first = text.slice(0, 0, 1), part = text.slice(0, 1).slice(1, 3);
  at::Tensor mask = at::ones({2, 9}, at::kBool);
  mask[1].slice(0, 0, 3).fill_(false);
  const at::Tensor padded = language_model(text, Batch{.mask = mask});
  EXPECT_TRUE(close(padded.slice(0, 0, 1), language_model(first), testing::kFloat64));
  EXPECT_TRUE(close(padded.slice(0, 1).slice(1, 3), language_model(part), testing::kFloat64));
  const at::Tensor packed = language_model(at::cat({first, part}, 1), Batch{.cu_seqlens = at::tensor({0, 9, 15})});
  EXPECT_TRUE(close(packed.slice(1, 0, 9), language_model(first), testing::kFloat64));
  EXPECT_TRUE(close(packed.slice(1, 9), language_model(part), testing::kFloat64));
}

}  // namespace
}  // namespace fem
