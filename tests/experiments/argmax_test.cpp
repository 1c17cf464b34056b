#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>
#include <sstream>

#include "experiments/argmax/experiment.h"
#include "experiments/argmax/trainer.h"
#include "fem/io/safetensors.h"
#include "io/jsonl.h"
#include "io/temporary_folder.h"

namespace fem {
namespace {

using ::testing::HasSubstr;
using Argmax = testing::TemporaryFolder;

ArgmaxPlan tiny_plan(const std::filesystem::path& out) {
  ArgmaxPlan plan = argmax_preset("smoke");
  plan.run = {.dim = 8, .heads = 2, .length = 12, .batch = 16, .steps = 30, .validation_examples = 40};
  plan.out = out;
  return plan;
}

TEST(ArgmaxPlan, BadPlansAreRefusedInOneSentence) {
  const auto message = [](auto change) {
    ArgmaxPlan plan = tiny_plan("unused");
    change(plan);
    try {
      check(plan);
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message([](ArgmaxPlan&) {}), "accepted");
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.run.prior = "lstm"; }), HasSubstr("rnn_decay, mamba, got 'lstm'"));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.run.heads = 3; }),
              HasSubstr("expected --dim divisible by --heads, got 8 and 3"));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.mixers = {"lstm"}; }), HasSubstr("got 'lstm'"));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.mixers = {"fem", "fem"}; }), HasSubstr("'fem' twice"));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.run.steps = 0; }), HasSubstr("expected --steps of at least 1, got 0"));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.run.length = 1; }), HasSubstr("--length of at least 2"));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.run.learning_rate = -1; }), HasSubstr("positive --lr, got -1"));
  EXPECT_THROW(argmax_preset("huge"), c10::Error);
}

TEST(ArgmaxPlan, PaperPresetIsThePublishedSize) {
  const ArgmaxPlan plan = argmax_preset("paper");
  const ArgmaxConfig& run = plan.run;
  EXPECT_EQ(std::tie(run.dim, run.heads, run.length, run.batch, run.steps), std::make_tuple(512, 4, 128, 64, 2000));
  EXPECT_EQ(std::tie(run.learning_rate, run.train_examples, run.validation_examples),
            std::make_tuple(1e-2, 200000, 2000));
}

TEST(ArgmaxModel, BothMixersStartFromTheSamePrior) {
  const ArgmaxModel fem({.mixer = "fem", .dim = 8, .heads = 2}), mean({.mixer = "mean", .dim = 8, .heads = 2});
  for (const auto& [name, parameter] : mean.parameters()) EXPECT_TRUE(at::equal(parameter, fem.parameters().at(name)));
  EXPECT_EQ(mean.parameter_count(), 2 * (8 * 8 + 8));
  EXPECT_EQ(fem.parameter_count(), 3 * (8 * 8 + 8) + 8);
}

TEST_F(Argmax, RunWritesOneResultPerRunAndOnePointPerEvaluation) {
  ArgmaxPlan plan = tiny_plan(folder);
  plan.seeds = 2;
  std::ostringstream out;
  const std::vector<ArgmaxResult> results = run_argmax(plan, out);
  EXPECT_EQ(results.size(), 4U);
  EXPECT_THAT(out.str(), HasSubstr("estimated cost"));

  const std::vector<Json> lines = read_jsonl(plan.out / "results.jsonl");
  ASSERT_EQ(lines.size(), 4U);
  for (const Json& line : lines) {
    EXPECT_EQ(line.at("config").at("steps"), 30);
    for (const char* key : {"parameters", "validation_loss", "accuracy", "seconds"})
      EXPECT_TRUE(line.at(key).is_number()) << key;
    for (const char* key : {"fem", "torch", "isa", "threads"}) EXPECT_TRUE(line.at("versions").contains(key)) << key;
  }
  std::set<int64_t> steps;
  for (const Json& line : read_jsonl(plan.out / "curve.jsonl")) steps.insert(line.at("step").get<int64_t>());
  EXPECT_EQ(steps.size(), 31U);
  EXPECT_TRUE(std::filesystem::is_empty(plan.out / "checkpoints"));

  std::ostringstream report;
  print_argmax_report(plan, results, report);
  EXPECT_THAT(report.str(), HasSubstr("±"));
  EXPECT_THAT(report.str(), HasSubstr("8.33 %"));  // chance at T 12
  EXPECT_THAT(report.str(), HasSubstr("~100 %"));
}

TEST_F(Argmax, CompleteRunsAreSkippedOnResume) {
  ArgmaxPlan plan = tiny_plan(folder);
  std::ostringstream out;
  const std::vector<ArgmaxResult> first = run_argmax(plan, out);
  plan.resume = true;
  const std::vector<ArgmaxResult> second = run_argmax(plan, out);
  EXPECT_EQ(read_jsonl(plan.out / "results.jsonl").size(), 2U);
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[0].accuracy, first[0].accuracy);
  EXPECT_EQ(second[0].seconds, first[0].seconds);

  plan.run.learning_rate = 2e-2;  // another configuration is another run
  run_argmax(plan, out);
  EXPECT_EQ(read_jsonl(plan.out / "results.jsonl").size(), 4U);
}

TEST_F(Argmax, TrainingLowersTheLoss) {
  ArgmaxTrainer trainer({.dim = 16, .heads = 2, .length = 16, .steps = 100, .validation_examples = 64});
  const double before = trainer.evaluate().validation_loss;
  for (int i = 0; i < 100; ++i) trainer.step();
  EXPECT_LT(trainer.evaluate().validation_loss, before / 1.5);
}

TEST_F(Argmax, InterruptedAndResumedEqualsUninterruptedBitForBit) {
  const auto checkpoint = folder / "run.safetensors";
  for (const char* mixer : {"fem", "mean"}) {
    const ArgmaxConfig config{
        .mixer = mixer, .dim = 16, .heads = 2, .length = 20, .batch = 16, .validation_examples = 32};
    ArgmaxTrainer whole(config), first(config), second(config);
    for (int i = 0; i < 12; ++i) whole.step();
    for (int i = 0; i < 5; ++i) first.step();
    first.save(checkpoint, 1.5);
    EXPECT_EQ(second.load(checkpoint), 1.5);
    EXPECT_EQ(second.steps_done(), 5);
    for (int i = 0; i < 7; ++i) second.step();

    whole.save(folder / "whole.safetensors", 0);
    second.save(folder / "second.safetensors", 0);
    const auto a = load_safetensors(folder / "whole.safetensors").tensors;
    const auto b = load_safetensors(folder / "second.safetensors").tensors;
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << mixer << " " << name;
    EXPECT_EQ(whole.evaluate().validation_loss, second.evaluate().validation_loss);
  }
}

TEST_F(Argmax, CheckpointOfAnotherConfigurationIsRefused) {
  const auto checkpoint = folder / "run.safetensors";
  ArgmaxTrainer({.dim = 8, .heads = 2}).save(checkpoint, 0);
  try {
    ArgmaxTrainer({.dim = 16, .heads = 2}).load(checkpoint);
    FAIL() << "loaded";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("choose another --out"));
  }
}

}  // namespace
}  // namespace fem
