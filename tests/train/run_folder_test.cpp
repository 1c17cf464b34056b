// The folder of a run: whose it is, what it goes on from, what is never lost in it.

#include "train/run_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <map>
#include <nlohmann/json.hpp>

#include "io/jsonl.h"
#include "support/error_text.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/small_runs.h"
#include "train/small_tasks.h"
#include "train/trainer.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using testing::BreakTask;
using testing::fails_with;
using testing::Runs;

TEST_F(Runs, AFinishedRunIsLeftAsItIs) {
  options.keep_best = options.validate_first = true;
  const TrainResult whole = go("run");
  const auto snapshot = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder / "run"))
      if (entry.is_regular_file() && entry.path().filename() != "lock") files[entry.path()] = read(entry.path());
    return files;
  };
  const auto before = snapshot();
  const TrainResult again = go("run", true);
  EXPECT_TRUE(again.finished);
  EXPECT_EQ(std::tie(again.step, again.measured_step, again.parameters, again.seconds, again.measures),
            std::tie(whole.step, whole.measured_step, whole.parameters, whole.seconds, whole.measures));
  EXPECT_EQ(snapshot(), before);

  // Killed between the last checkpoint and the result, it is measured again.
  fs::remove(result_path(folder / "run"));
  EXPECT_EQ(go("run", true).measures, whole.measures);
  EXPECT_EQ(result_of("run")["measured_step"], whole.measured_step);
}

TEST_F(Runs, MoreStepsGoOnAlongTheLongerSchedule) {
  options.final_learning_rate = 0;
  go("run");
  options.steps = 30;
  EXPECT_TRUE(go("run", true).finished);
  EXPECT_NE(
      log.str().find("train.steps was 20 and is now 30: from here on the learning rate is that of the longer run"),
      std::string::npos);
  std::map<int64_t, double> rates;
  for (const Json& line : read_jsonl(metrics_path(folder / "run")))
    if (line["kind"] == "train") rates[line["step"]] = line["learning_rate"];
  EXPECT_EQ(rates.size(), 30u);
  EXPECT_EQ(rates[30], learning_rate_at(options, 29));
  EXPECT_EQ(rates[21], learning_rate_at(options, 20));
  options.steps = 20;
  EXPECT_EQ(rates[20], learning_rate_at(options, 19));
  EXPECT_TRUE(fails_with("train/steps was 30 and is now 20", [&] { go("run", true); }));
  EXPECT_EQ(result_of("run")["step"], 30);
}

TEST_F(Runs, AutoIsThePrecisionThatTheRunBeganWith) {
  const Precision other =
      resolved(Precision::kAuto) == Precision::kFloat32 ? Precision::kBfloat16 : Precision::kFloat32;
  options.precision = other;  // as on a machine where auto is that
  go("run", false, 3);
  options.precision = Precision::kAuto;
  EXPECT_TRUE(go("run", true).finished);
  EXPECT_EQ(saved_options(Checkpoints(folder / "run", 1).newest()->folder).precision, other);
  EXPECT_EQ(Json::parse(read(config_path(folder / "run")))["train"]["precision"], spelled(other));
  go("fresh");
  EXPECT_EQ(Json::parse(read(config_path(folder / "fresh")))["train"]["precision"],
            spelled(resolved(Precision::kAuto)));
  options.precision = resolved(Precision::kAuto);
  EXPECT_TRUE(fails_with("train/precision was", [&] { go("run", true); }));
}

TEST_F(Runs, BeginsWithTheParametersOfAnotherRun) {
  go("first");
  options.init_from = (folder / "first").string();
  const TrainResult second = go("second");
  EXPECT_NEAR(value_of(second.measures, "loss"), 4.0 - 0.82, 1e-5);  // 2.0 to begin with, 0.1 a step
  go("cut", false, 7);
  EXPECT_EQ(go("cut", true).measures, second.measures);  // goes on from its own checkpoint
  EXPECT_EQ(lines_of("cut"), lines_of("second"));
}

TEST_F(Runs, ADamagedCheckpointIsToldAndTheOneBeforeIsTakenWhenAsked) {
  options.keep_checkpoints = 9;
  const TrainResult whole = go("whole");
  const auto damaged = [&](const std::string& name, int64_t step, const char* file) {
    flip_a_bit(folder / name / "checkpoints" / checkpoint_name(step) / file);
  };
  int runs = 0;
  for (const char* file : {"weights", "optimizer.safetensors", "trainer_state.json", "checksums"}) {
    SCOPED_TRACE(file);
    const std::string name = "run-" + std::to_string(runs++);
    fs::copy(folder / "whole", folder / name, fs::copy_options::recursive);
    damaged(name, 20, file);
    resume_from.reset();
    EXPECT_TRUE(fails_with(" is damaged", [&] { go(name, true); }));
    EXPECT_TRUE(fails_with("step 15 before it is whole: add --resume-from 15", [&] { go(name, true); }));
    damaged(name, 15, "weights");
    EXPECT_TRUE(fails_with("add --resume-from 10 to go on from there", [&] { go(name, true); }));
    resume_from = 15;
    EXPECT_TRUE(fails_with("add --resume-from 10 to go on from there", [&] { go(name, true); }));
    resume_from = 10;
    EXPECT_EQ(go(name, true).measures, whole.measures);
    EXPECT_EQ(lines_of(name), lines_of("whole"));
    EXPECT_EQ(checkpoints(name),
              (std::set<std::string>{"step-00000005", "step-00000010", "step-00000015", "step-00000020",
                                     "aside-step-00000015", "aside-step-00000020"}));
    resume_from = 11;
    EXPECT_TRUE(fails_with("--resume-from 11: expected one of the steps 5, 10, 15, 20", [&] { go(name, true); }));
  }
  fs::remove(folder / "whole" / "checkpoints" / "step-00000020" / "optimizer.safetensors");
  resume_from.reset();
  EXPECT_TRUE(fails_with("optimizer.safetensors is missing", [&] { go("whole", true); }));
}

TEST_F(Runs, TheMeasuredBestModelMustBeWhole) {
  options.keep_best = true;
  go("run", false, 18);
  flip_a_bit(folder / "run" / "best" / "weights");
  EXPECT_TRUE(fails_with("weights is damaged", [&] { go("run", true); }));
}

TEST_F(Runs, NothingButARunIsOverwritten) {
  const auto refused = [&](const std::string& held) {
    std::map<fs::path, std::string> before;
    for (const auto& entry : fs::recursive_directory_iterator(folder / "run"))
      before[entry.path()] = entry.is_regular_file() ? read(entry.path()) : "";
    const auto result = fails_with("is not empty and not a run (it holds " + held + ")", [&] { go("run", true); });
    for (const auto& entry : fs::recursive_directory_iterator(folder / "run"))
      EXPECT_TRUE(before.contains(entry.path())) << entry.path();
    for (const auto& [path, content] : before) EXPECT_EQ(fs::is_directory(path) ? "" : read(path), content) << path;
    fs::remove_all(folder / "run");
    return result;
  };
  fs::create_directories(folder / "run" / "texts");
  EXPECT_TRUE(refused("texts"));
  fs::create_directories(folder / "run");
  write(folder / "run" / "config.json", R"({"model_type": "fem_language_model", "n_layer": 2})");
  write(folder / "run" / "model.safetensors", "weights");
  EXPECT_TRUE(refused("config.json"));
  write(folder / "run", "a file");
  EXPECT_TRUE(fails_with("expected --out to be a folder", [&] { go("run"); }));
  EXPECT_EQ(read(folder / "run"), "a file");

  // What a process leaves that was killed early is no obstacle, but a result without its checkpoints is.
  for (const char* name : {"lock", "log.txt", "config.json.12-0.tmp"}) {
    fs::create_directories(folder / "early");
    write(folder / "early" / name, "");
  }
  EXPECT_TRUE(go("early").finished);
  fs::remove_all(folder / "early" / "checkpoints");
  EXPECT_TRUE(fails_with("holds a finished run whose checkpoints are gone", [&] { go("early", true); }));
}

TEST_F(Runs, AFolderIsOneRunsAtATime) {
  fs::create_directories(folder / "run");
  const pid_t child = ::fork();
  if (child == 0) {
    const RunFolder held(folder / "run");
    write(folder / "held", "");
    ::pause();
  }
  while (!fs::exists(folder / "held")) ::usleep(1000);
  EXPECT_TRUE(fails_with("run is in use by process " + std::to_string(child) + " on ", [&] { go("run", true); }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(go("run").finished);
}

TEST_F(Runs, WhatIsNotFiniteIsNeverSaved) {
  options.checkpoint_every = 1;
  const auto break_at = [&](int64_t step) {
    return train([&](const auto&) { return std::make_unique<BreakTask>(step); }, options, {.out = folder / "run"}, log);
  };
  EXPECT_TRUE(fails_with("after step 4 the parameter weights is not finite, and nothing of it was saved",
                         [&] { break_at(3); }));
  EXPECT_EQ(checkpoints("run"), std::set<std::string>{"step-00000003"});
  const Json state = Json::parse(read(folder / "run" / "checkpoints" / "step-00000003" / "trainer_state.json"));
  EXPECT_EQ(state["step"], 3);
}

TEST_F(Runs, ARecordThatCannotBeWrittenEndsNoRun) {
  // No file grows beyond 4 kB, as on a full disk: checkpoints fit, the metrics of 300 steps do not.
  options.steps = 300;
  options.checkpoint_every = 100;
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{4096, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::testing::internal::CaptureStderr();
  TrainResult result;
  try {
    result = go("run");
  } catch (const c10::Error& error) {
    ADD_FAILURE() << error.what_without_backtrace();
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(result.finished);
  EXPECT_LE(fs::file_size(metrics_path(folder / "run")), 4096u);
  EXPECT_GT(fs::file_size(metrics_path(folder / "run")), 3500u);
  const size_t warned = said.find("writing failed");
  EXPECT_NE(warned, std::string::npos) << said;
  EXPECT_EQ(said.find("writing failed", warned + 1), std::string::npos) << said;
}

TEST_F(Runs, RefusesBeforeTheTaskIsMade) {
  go("run");
  EXPECT_TRUE(fails_with("already holds a run (step 20)", [&] {
    train([](const auto&) -> std::unique_ptr<Task> { throw std::logic_error("was made"); }, options,
          {.out = folder / "run"}, log);
  }));
}

}  // namespace
}  // namespace fem
