// Residual rules: against goldens, where they must agree with each other, and around every mixer.
#include "models/residual.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/energy_golden.h"
#include "models/small_models.h"
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
  const auto of = energy_goldens();
  const at::Tensor input = rule_of(rule).input(stream, coefficients);
  return rule_of(rule).step(stream, testing::golden_attention(of, at::layer_norm(input, {input.size(1)}, {}, {}, 1e-5)),
                            coefficients);
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
  for (const auto& [name, rule] :
       {std::pair{"mha", ResidualRule::kPlain}, {"momen", ResidualRule::kMomentum}, {"nag", ResidualRule::kNesterov}}) {
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
}

class ResidualAroundMixers : public ::testing::TestWithParam<std::tuple<ResidualRule, testing::MixerChoice>> {
 protected:
  static LanguageModel model() {
    const auto [rule, mixer] = GetParam();
    LanguageModelOptions options = testing::random_model(mixer, 11)->options;
    options.residual = rule;
    at::manual_seed(7);
    LanguageModel model(options);
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
INSTANTIATE_TEST_SUITE_P(Rule, ResidualAroundMixers,
                         ::testing::Combine(::testing::Values(ResidualRule::kMomentum, ResidualRule::kNesterov),
                                            ::testing::ValuesIn(testing::every_mixer())),
                         [](const auto& info) {
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
  EXPECT_NE(kept.at("blocks.1.residual.decay").item<double>(), 0);
  EXPECT_EQ(kept.at("blocks.0.residual.decay").item<double>(), 0);  // nothing came before it
  EXPECT_EQ(kept.count("blocks.1.residual.look_ahead"), std::get<0>(GetParam()) == ResidualRule::kNesterov ? 1U : 0U);
}

}  // namespace
}  // namespace fem
