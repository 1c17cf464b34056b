// What is measured of a trained model: against tied weights, for which the answer is known, and attention's own read.
#include "experiments/energy/bridge.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "fem/energy.h"
#include "fem/io/model_folder.h"
#include "fem/ops/rms_norm.h"
#include "fem/ops/softmax_read.h"
#include "fem/text/tokenizer.h"
#include "io/temporary_folder.h"
#include "models/small_models.h"
#include "models/token_mixer.h"
#include "priors/query_key.h"
#include "report/study.h"
#include "support/error_text.h"

namespace fem {
namespace {

using Bridge = testing::TemporaryFolder;
using testing::fails_with;

constexpr testing::MixerChoice kPlainAttention{BlockMixer::kAttention, PriorType::kSoftmax};
constexpr testing::MixerChoice kFemSoftmax{BlockMixer::kFem, PriorType::kSoftmax};

// Attention whose update is minus the gradient of its energy in the normed stream, `length` times.
LanguageModel tied_model(double length) {
  LanguageModelOptions options = testing::random_model(kPlainAttention, 257)->options;
  options.mixer.bias = false;
  options.mixer.use_rope = false;
  options.norm_eps = 1e-14;  // a norm that takes all of x's own direction away
  at::manual_seed(2);
  LanguageModel model(options);
  const at::NoGradGuard no_gradients;
  model->to(at::kDouble);
  auto parameters = model->named_parameters();
  for (const char* block : {"blocks.0.", "blocks.1."}) {
    const auto of = [&](const char* name) { return parameters[block + std::string("mixer.") + name + ".weight"]; };
    for (const char* name : {"query", "key"}) of(name).normal_(0.0, 0.5);
    of("value").copy_(of("key"));
    of("output").copy_(length * of("query").t());
  }
  parameters["embedding.weight"].normal_();
  return model;
}

at::Tensor some_tokens() {
  at::manual_seed(1);
  return at::randint(257, {3, 20}, at::kLong);
}

TEST(Bridges, ATiedLayerDescendsAsFarAsItsLengthAllows) {
  LanguageModel model = tied_model(1e-4);
  const std::vector<BridgeLayer> layers = measure_bridge(model, some_tokens());
  ASSERT_EQ(layers.size(), 2U);
  for (const BridgeLayer& layer : layers) {
    EXPECT_GT(layer.drop, 0);
    EXPECT_GT(layer.gradient_drop, layer.drop);  // nothing of that length leads further down
    EXPECT_GT(layer.drop, 0.8 * layer.gradient_drop);
    EXPECT_LT(std::abs(layer.random_drop), 0.3 * layer.drop);
  }
  // The update is minus the gradient behind the norm, which takes the part along x away: what is left of it is the
  // cosine.
  const at::NoGradGuard no_gradients;
  const auto parameters = model->named_parameters();
  const at::Tensor x = at::embedding(parameters["embedding.weight"], some_tokens());
  const at::Tensor update = found(model->trace(some_tokens()), "blocks.0.mixer") - x;
  const at::Tensor along = at::cosine_similarity(update, x, -1);
  EXPECT_NEAR(layers[0].cosine, (1 - along.square()).sqrt().mean().item<double>(), 1e-9);
}

TEST(Bridges, WhatLeadsUpIsADropBelowZero) {
  LanguageModel model = tied_model(-1e-4);
  for (const BridgeLayer& layer : measure_bridge(model, some_tokens())) {
    EXPECT_LT(layer.drop, 0);
    EXPECT_GT(layer.gradient_drop, 0);
    EXPECT_LT(layer.cosine, -0.8);
  }
}

// Queries and keys of a mixer are those that it reads by, asked apart or not.
TEST(Bridges, QueriesAndKeysAreThoseOfTheRead) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({2, 9, 16}, at::kDouble), ahead = at::randn({2, 9, 16}, at::kDouble);
  for (const testing::MixerChoice& choice : {kPlainAttention, kFemSoftmax}) {
    SCOPED_TRACE(testing::name_of(choice));
    BackboneOptions options = testing::random_model(choice, 11)->options;
    if (choice.block_mixer == BlockMixer::kFem)  // its mean alone
      options.mixer.use_lse = options.mixer.use_temperature = options.mixer.use_outer_gate = options.mixer.use_conv =
          false;
    const TokenMixer& mixer = token_mixer_of(options.block_mixer);
    std::vector<at::Tensor> weights;
    std::map<std::string, at::Tensor> named;
    for (const ParameterSpec& spec : mixer.parameters(options, 0)) {
      weights.push_back(0.4 * at::randn(spec.shape, at::kDouble));
      named[spec.name] = weights.back();
    }
    const bool fem = choice.block_mixer == BlockMixer::kFem;
    const auto linear = [&](const std::string& name, const at::Tensor& in) {
      return at::linear(in, named.at(name + ".weight"), named.at(name + ".bias"));
    };
    for (const MixerInput& in : {MixerInput(x), MixerInput(x, ahead)}) {
      const QueryAndKey asked = mixer.queries_and_keys(options, weights, in);
      const at::Tensor value = linear(fem ? "W_v" : "value", x).unflatten(-1, {2, -1});
      const at::Tensor read = softmax_read(asked.query, asked.key, value, std::nullopt).mean.flatten(2);
      const at::Tensor mixed = mixer.bind(options, 0, weights)(in, {}, nullptr, false);
      EXPECT_TRUE(at::allclose(linear(fem ? "W_o" : "output", read), mixed, 1e-9, 1e-12));
    }
  }
}

TEST(Bridges, AMixerWithoutSuchAPriorIsRefused) {
  LanguageModel recurrent = testing::random_model({BlockMixer::kDeltaNet, PriorType::kSoftmax}, 257);
  EXPECT_TRUE(
      fails_with("block_mixer = \"delta_net\" has no softmax", [&] { measure_bridge(recurrent, some_tokens()); }));
  LanguageModel gla = testing::random_model({BlockMixer::kFem, PriorType::kGla}, 257);
  EXPECT_TRUE(fails_with("expected a causal mixer with prior softmax", [&] { measure_bridge(gla, some_tokens()); }));
  for (const char* wrong : {"runs/a", "=runs/a", "a="})
    EXPECT_TRUE(fails_with("--model: expected NAME=FOLDER", [&] { bridge_model(wrong); }));
}

TEST_F(Bridge, IsAStudyOfTheReportAndMeasuresAModelOnce) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i * i % 26);
  write(folder / "book.txt", text);
  BridgePlan plan{.text = folder / "book.txt", .rows = 2, .length = 12};
  for (const auto& [name, choice] : {std::pair{"attention", kPlainAttention}, {"fem", kFemSoftmax}}) {
    const std::filesystem::path place = folder / name;
    save_language_model(place, testing::random_model(choice, 257));
    byte_tokenizer()->save(place);
    plan.models.push_back({name, place});
  }
  plan.models.push_back({"fem", folder / "fem"});
  run_bridge(plan, folder / "out");
  const auto size = std::filesystem::file_size(sweep_results_path(folder / "out"));
  run_bridge(plan, folder / "out");
  EXPECT_EQ(std::filesystem::file_size(sweep_results_path(folder / "out")), size);
  const std::vector<Study> studies = gather({folder / "out"});
  EXPECT_EQ(studies[0].lines.size(), 3U);
  EXPECT_EQ(studies[0].measure, "share");
  ASSERT_EQ(studies[0].curves.size(), 3U);
  for (const char* measure : {"share", "drop", "gradient_drop", "random_drop", "cosine", "energy"})
    EXPECT_EQ(studies[0].curves[0].measures.at(measure).size(), 2U) << measure;
  plan.length = 101;
  EXPECT_TRUE(
      fails_with("expected at least 101 tokens in the last tenth of", [&] { run_bridge(plan, folder / "long"); }));
}

}  // namespace
}  // namespace fem
