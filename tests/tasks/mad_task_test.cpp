#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "io/temporary_folder.h"
#include "support/error_text.h"
#include "support/tolerance.h"
#include "tasks/mad/data.h"
#include "tasks/mad/generator.h"
#include "tasks/mad/model.h"
#include "tasks/mad/task.h"
#include "tasks/runs_of_a_task.h"
#include "train/trainer.h"

namespace fem {
namespace {

using Mad = testing::TemporaryFolder;
using nlohmann::json;

MadOptions small_mad(MadKind kind) {
  json recipe{{"model", {{"n_embd", 16}, {"n_head", 2}, {"n_layer", 2}, {"mlp_width", 24}}},
              {"data", {{"kind", spelled(kind)}, {"length", 14}, {"train_examples", 40}, {"test_examples", 200}}}};
  recipe["model"]["mixer"] = {{"conv_hidden", 4}};
  if (kind == MadKind::kSelectiveCopying) recipe["data"]["copied"] = 4;
  return mad_options_from_json(recipe);
}

TrainOptions mad_training(int64_t batch = 8) {
  TrainOptions options;
  options.batch = batch;
  options.learning_rate = 3e-3;
  options.warmup_steps = 0;
  options.precision = Precision::kFloat32;
  return options;
}

std::shared_ptr<ProcessGroup> one_process() { return ProcessGroup::connect({}, std::chrono::seconds(1)); }

TEST_F(Mad, TrainingLowersTheLossOfEveryKind) {
  for (const auto& [name, kind] : Spelling<MadKind>::values) {
    const auto task = mad_task(small_mad(kind), mad_training());
    Trainer trainer(*task, mad_training(), one_process());
    const double first = trainer.step().loss;
    double last = first;
    for (int i = 0; i < 60; ++i) last = trainer.step().loss;
    EXPECT_LT(last, 0.95 * first) << name;
  }
}

TEST_F(Mad, LossAndMeasuresAreThoseOfTheExamples) {
  for (const MadKind kind : {MadKind::kNoisyRecall, MadKind::kCompression}) {
    const MadOptions options = small_mad(kind);
    const MadData data = mad_data(options.data);
    const MadModel model(options, 0);
    const at::NoGradGuard no_grad;
    double recall = 0;
    for (const auto& [first, last] : {std::pair{0, 128}, {128, 200}}) {
      const at::Tensor targets = data.test.targets.slice(0, first, last);
      const at::Tensor named = model.forward(data.test.tokens.slice(0, first, last), false).argmax(-1);
      const at::Tensor counts = targets != kMadIgnored;
      recall += macro_accuracy(named.masked_select(counts), targets.masked_select(counts), options.data.vocab_size);
    }
    const at::Tensor logits = model.forward(data.test.tokens, false).flatten(0, 1);
    const auto task = mad_task(options, mad_training());
    const NamedValues measures = Trainer(*task, mad_training(), one_process()).validate(true);
    const double loss =
        at::cross_entropy_loss(logits, data.test.targets.flatten(), {}, at::Reduction::Mean, kMadIgnored)
            .item<double>();
    EXPECT_NEAR(value_of(measures, "loss"), loss, 1e-5);
    EXPECT_NEAR(value_of(measures, "accuracy"), recall / 2, 1e-9);
  }
}

TEST_F(Mad, EveryEpochReadsEveryExampleOnce) {
  const MadOptions options = small_mad(MadKind::kMemorization);
  const auto task = mad_task(options, mad_training());
  double once = 0, twice = 0;
  for (int64_t row = 0; row < 40; ++row) once += task->loss({row, 1}).sum.item<double>();
  for (int64_t row = 40; row < 80; ++row) twice += task->loss({row, 1}).sum.item<double>();
  EXPECT_NEAR(once, twice, 1e-3);
  const double first = task->loss({0, 8}).sum.item<double>(), second = task->loss({40, 8}).sum.item<double>();
  EXPECT_GT(std::abs(first - second), 1e-3);  // in another order
}

TEST_F(Mad, TheAutoencoderIsThePublishedOne) {
  const MadOptions options = small_mad(MadKind::kCompression);
  const MadModel model(options, 0);
  // Starting at one, norms would not be missed.
  std::map<std::string, at::Tensor> named;
  for (size_t i = 0; i < model.specs().size(); ++i) {
    const at::Tensor& parameter = model.parameters()[i];
    if (parameter.dim() == 1) parameter.data().add_(at::rand_like(parameter));
    named[model.specs()[i].name] = parameter;
  }
  const at::Tensor tokens = at::randint(0, 15, {2, 14}, at::kLong);
  const Trace trace = model.trace(tokens);
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return x * (x.square().mean(-1, true) + options.model.norm_eps).rsqrt() * named.at(name + ".weight");
  };
  // The last token's stream as the blocks leave it, not normed, and the places: all that a decoder is given.
  const at::Tensor last = found(trace, "blocks." + std::to_string(options.model.n_layer - 1) + ".mlp").slice(1, -1);
  at::Tensor x = last + sine_positions(14, options.model.n_embd);
  for (const char* layer : {"decoder.0", "decoder.1"}) {
    const std::string name = std::string(layer) + ".linear";
    x = at::gelu(
        at::linear(norm(x, std::string(layer) + ".norm"), named.at(name + ".weight"), named.at(name + ".bias")));
  }
  const at::Tensor logits = at::linear(norm(x, "norm"), named.at("head.weight"), named.at("head.bias"));
  EXPECT_TRUE(testing::close(model.forward(tokens, false), logits, testing::kFloat32Layer));

  const at::Tensor positions = sine_positions(5, 8);
  EXPECT_NEAR(positions[3][0].item<double>(), std::sin(3.0), 1e-6);
  EXPECT_NEAR(positions[3][3].item<double>(), std::sin(3e-4), 1e-6);
  EXPECT_NEAR(positions[3][4].item<double>(), std::cos(3.0), 1e-6);
}

TEST_F(Mad, TwoProcessesMeasureAndLearnAsOne) {
  testing::expect_two_processes_do_as_one([] { return mad_task(small_mad(MadKind::kInContextRecall), mad_training()); },
                                          mad_training());
}

TEST_F(Mad, InterruptedAndResumedEqualsUninterruptedBitForBit) {
  testing::expect_resumed_bit_for_bit([] { return mad_task(small_mad(MadKind::kFuzzyRecall), mad_training()); },
                                      mad_training(), folder);
}

TEST(MadRecipes, AreRefusedWithASentence) {
  const auto reading = [](const json& recipe) { return [recipe] { mad_options_from_json(recipe); }; };
  EXPECT_TRUE(testing::fails_with("expected kind to be one of \"in_context_recall\"",
                                  reading({{"data", {{"kind", "recall"}}}})));
  EXPECT_TRUE(testing::fails_with("mad: expected n_embd of at least 1", reading({{"model", {{"n_head", 2}}}})));
}

}  // namespace
}  // namespace fem
