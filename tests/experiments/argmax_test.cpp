#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>
#include <sstream>

#include "experiments/argmax/experiment.h"
#include "io/jsonl.h"
#include "io/recipe.h"
#include "io/temporary_folder.h"
#include "tasks/table.h"
#include "train/run.h"

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
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.run.prior = "lstm"; }),
              HasSubstr("\"rnn_decay\", \"mamba\", got \"lstm\""));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.run.heads = 3; }),
              HasSubstr("expected dim divisible by heads, got 8 and 3"));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.mixers = {"lstm"}; }), HasSubstr("got \"lstm\""));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.mixers = {"fem", "fem"}; }), HasSubstr("'fem' twice"));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.run.steps = 0; }), HasSubstr("expected steps of at least 1, got 0"));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.run.length = 1; }), HasSubstr("expected length of at least 2"));
  EXPECT_THAT(message([](ArgmaxPlan& p) { p.run.learning_rate = -1; }), HasSubstr("positive learning_rate, got -1"));
  EXPECT_THROW(argmax_preset("huge"), c10::Error);
}

TEST(ArgmaxPlan, PaperPresetIsThePublishedSize) {
  const ArgmaxPlan plan = argmax_preset("paper");
  const ArgmaxConfig& run = plan.run;
  EXPECT_EQ(std::tie(run.dim, run.heads, run.length, run.batch, run.steps), std::make_tuple(512, 4, 128, 64, 2000));
  EXPECT_EQ(std::tie(run.learning_rate, run.train_examples, run.validation_examples),
            std::make_tuple(1e-2, 200000, 2000));
}

TEST(ArgmaxPlan, PresetsAreTheShippedRecipes) {
  const auto resolved = [](const Recipe& recipe) {
    nlohmann::json out = recipe.make()->recipe();
    out["train"] = to_json(recipe.train);
    return out;
  };
  for (const char* name : {"smoke", "demo", "paper"})
    EXPECT_EQ(resolved(recipe_from_json(argmax_recipe(argmax_preset(name).run))),
              resolved(recipe_from_json(load_recipe(find_recipe(std::string("argmax/") + name)))))
        << name;
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
  EXPECT_TRUE(std::filesystem::is_empty(plan.out / "runs"));

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

// As after a kill: half a run in its folder, and no result of it.
TEST_F(Argmax, ABegunRunGoesOnOnResumeAndBeginsAnewWithoutIt) {
  ArgmaxPlan plan = tiny_plan(folder / "whole");
  plan.mixers = {"fem"};
  std::ostringstream out;
  const std::vector<ArgmaxResult> whole = run_argmax(plan, out);

  for (const bool resume : {true, false}) {
    plan.out = folder / (resume ? "resumed" : "anew");
    plan.resume = resume;
    const Recipe recipe = recipe_from_json(argmax_recipe(plan.runs()[0]));
    bool stopped = false;
    const auto stop_after_ten = [&](int64_t step, const NamedValues&) {
      if (step == 10 && !stopped) stopped = std::raise(SIGINT) == 0;
    };
    const TrainResult half = train([&](const auto&) { return recipe.make(); }, recipe.train,
                                   {.out = plan.out / "runs" / "fem-seed0", .on_validation = stop_after_ten}, out);
    EXPECT_FALSE(half.finished);
    const std::vector<ArgmaxResult> results = run_argmax(plan, out);
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].validation_loss, whole[0].validation_loss);
    EXPECT_EQ(results[0].accuracy, whole[0].accuracy);
    const int64_t first = read_jsonl(plan.out / "curve.jsonl").front().at("step");
    EXPECT_EQ(first, resume ? 11 : 0);  // the signal came after step 10 was validated and before step 11 was
  }
}

}  // namespace
}  // namespace fem
