#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "train/small_runs.h"
#include "train/small_tasks.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using testing::ClimbTask;
using testing::Runs;

TEST_F(Runs, WithoutPatienceARunGoesToItsLastStep) {
  const TrainResult result = go("run");
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(std::tie(result.step, result.measured_step, result.parameters), std::make_tuple(20, 20, 1));
  EXPECT_NEAR(value_of(result.measures, "loss"), 2.0 - 0.82, 1e-5);
  EXPECT_EQ(checkpoints("run"), std::set<std::string>{"step-00000020"});
  EXPECT_FALSE(fs::exists(folder / "run" / "best"));
}

TEST_F(Runs, PatienceEndsARunAndTheBestCheckpointIsKeptAndMeasured) {
  options.patience = 3;
  options.keep_best = true;
  const TrainResult result = go("run");
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.step, 14);  // validated after 8, 10, 12, 14
  EXPECT_EQ(result.measured_step, 8);
  EXPECT_NEAR(value_of(result.measures, "loss"), 0.02, 1e-5);
  EXPECT_EQ(checkpoints("run"), (std::set<std::string>{"step-00000008", "step-00000014"}));
  EXPECT_EQ(fs::canonical(folder / "run" / "best"), fs::canonical(folder / "run" / "checkpoints" / "step-00000008"));

  // What was not chosen is not measured at the end.
  std::vector<std::pair<std::string, int64_t>> measured;
  for (const std::string& text : lines_of("run"))
    if (const Json line = Json::parse(text); line["kind"] != "train") measured.emplace_back(line["kind"], line["step"]);
  EXPECT_EQ(measured[measured.size() - 2], std::make_pair(std::string("validation"), int64_t{14}));
  EXPECT_EQ(measured.back(), std::make_pair(std::string("best"), int64_t{8}));
  EXPECT_EQ(measured.size(), 7U + 1U);

  const Json written = result_of("run");
  EXPECT_EQ(written["step"], 14);
  EXPECT_EQ(written["measured_step"], 8);
  EXPECT_EQ(written["goal"], (Json{{"measure", "nearness"}, {"larger_is_better", true}}));
  EXPECT_EQ(written["measures"]["loss"], value_of(result.measures, "loss"));
}

TEST_F(Runs, ARunEndsWhereItIsGoodEnoughAndStaysEnded) {
  options.enough = -0.3;
  EXPECT_EQ(go("run").step, 6);
  EXPECT_EQ(go("run", true).step, 6);
  EXPECT_EQ(result_of("run")["step"], 6);
}

TEST_F(Runs, InterruptedAtAnyStepTheDecisionsAndFiguresAreTheSame) {
  options.patience = 3;
  options.keep_best = true;
  const TrainResult whole = go("whole");
  for (int64_t at = 0; at < 14; ++at) {  // also right before a validation, at the best step and at the last
    const std::string name = "cut-" + std::to_string(at);
    SCOPED_TRACE(name);
    const TrainResult first = go(name, false, at);
    EXPECT_EQ(first.finished, false);
    EXPECT_EQ(first.step, at == 0 ? 0 : at + 1);  // the first row is also read before the first step, for its memory
    const double saved = seconds_saved(name);
    EXPECT_GT(saved, 0);
    const TrainResult second = go(name, true);
    EXPECT_TRUE(second.finished);
    EXPECT_EQ(std::tie(second.step, second.measured_step), std::tie(whole.step, whole.measured_step));
    EXPECT_EQ(second.measures, whole.measures);
    EXPECT_EQ(lines_of(name), lines_of("whole"));
    EXPECT_TRUE(checkpoints(name).contains("step-00000008"));
    EXPECT_GT(second.seconds, saved);
  }
}

TEST_F(Runs, AStepThatIsInterruptedBetweenItsMicroBatchesIsDroppedWholeAndDoneAgain) {
  options.batch = 4;
  options.micro_batch = 1;
  options.steps = 6;
  const TrainResult whole = go("whole");
  for (const int64_t row : {0, 1, 2, 9, 14, 22}) {
    const std::string name = "cut-" + std::to_string(row);
    SCOPED_TRACE(name);
    const TrainResult first = go(name, false, row);
    EXPECT_FALSE(first.finished);
    EXPECT_EQ(first.step, row / 4);
    EXPECT_EQ(*checkpoints(name).rbegin(), "step-0000000" + std::to_string(row / 4));
    const TrainResult second = go(name, true);
    EXPECT_TRUE(second.finished);
    EXPECT_EQ(second.measures, whole.measures);
    EXPECT_EQ(lines_of(name), lines_of("whole"));
  }
}

TEST_F(Runs, ASignalInTheLastMicroBatchEndsTheRunAfterItsStep) {
  options.batch = 4;
  options.micro_batch = 1;
  EXPECT_EQ(go("run", false, 4 * 4 + 3).step, 5);
}

TEST_F(Runs, AnInterruptedValidationIsNotRecordedAndMadeAgain) {
  options.patience = 3;
  options.keep_best = options.validate_first = true;
  const TrainResult whole = go("whole");
  EXPECT_EQ(whole.step, 14);
  for (int64_t at = 0; at < 9; ++at) {  // before the first step, after 2 ... 14, and that of the end
    const std::string name = "cut-" + std::to_string(at);
    SCOPED_TRACE(name);
    const TrainResult first = go_interrupted_in_validation(name, at);
    EXPECT_FALSE(first.finished);
    EXPECT_EQ(first.step, std::min<int64_t>(2 * at, 14));
    const std::vector<std::string> before = lines_of(name), all = lines_of("whole");
    EXPECT_EQ(before, std::vector(all.begin(), all.begin() + before.size()));
    EXPECT_LT(before.size(), all.size());
    const TrainResult second = go(name, true);
    EXPECT_TRUE(second.finished);
    EXPECT_EQ(std::tie(second.step, second.measured_step), std::tie(whole.step, whole.measured_step));
    EXPECT_EQ(second.measures, whole.measures);
    EXPECT_EQ(lines_of(name), all);
  }
}

TEST_F(Runs, InterruptedInItsLastStepTheBestIsStillChosenAmongAll) {
  options.steps = 8;  // the last is the best
  options.validate_every = 3;
  options.keep_best = true;
  const TrainResult whole = go("whole");
  EXPECT_EQ(whole.measured_step, 8);
  EXPECT_FALSE(go("cut", false, 7).finished);
  EXPECT_EQ(go("cut", true).measured_step, 8);
  EXPECT_EQ(lines_of("cut"), lines_of("whole"));
}

TEST_F(Runs, AKillBetweenValidationAndCheckpointChangesNothing) {
  options.patience = 3;
  options.checkpoint_every = 1;
  options.keep_checkpoints = 30;
  go("whole");
  for (const int64_t at : {3, 8, 9, 13}) {  // the last checkpoint that a killed process left
    const std::string name = "killed-" + std::to_string(at);
    fs::copy(folder / "whole", folder / name, fs::copy_options::recursive);
    for (const std::string& checkpoint : checkpoints(name))
      if (std::stoll(checkpoint.substr(5)) > at) fs::remove_all(folder / name / "checkpoints" / checkpoint);
    EXPECT_EQ(go(name, true).step, 14);
    EXPECT_EQ(lines_of(name), lines_of("whole")) << name;
  }
}

TEST_F(Runs, MorePatienceGoesOnFromWhereLessEnded) {
  options.patience = 1;
  EXPECT_EQ(go("run").step, 10);
  options.patience = 4;
  EXPECT_EQ(go("run", true).step, 16);
}

TEST_F(Runs, ValidatesBeforeTheFirstStepIfAsked) {
  options.validate_first = true;
  std::vector<int64_t> steps;
  train([&](const auto&) { return std::make_unique<ClimbTask>(0.82); }, options,
        {.out = folder / "run", .on_validation = [&](int64_t step, const NamedValues&) { steps.push_back(step); }},
        log);
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20}));
}

TEST_F(Runs, ABestModelThatWasNeverBeatenIsThatOfTheStart) {
  options.validate_first = options.keep_best = true;
  const TrainResult result =
      train([&](const auto&) { return std::make_unique<ClimbTask>(-1); }, options, {.out = folder / "run"}, log);
  EXPECT_EQ(result.measured_step, 0);
  EXPECT_EQ(value_of(result.measures, "loss"), 1);
}

}  // namespace
}  // namespace fem
