// Runs of a few quick steps, in a folder of their own.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "io/jsonl.h"
#include "io/temporary_folder.h"
#include "train/metrics.h"
#include "train/run.h"
#include "train/run_folder.h"
#include "train/small_tasks.h"

namespace fem::testing {

class Runs : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    options.steps = 20;
    options.batch = 1;
    options.learning_rate = 0.1;
    options.final_learning_rate = 1;
    options.warmup_steps = 0;
    options.clip = 0;
    options.precision = Precision::kFloat32;
    options.validate_every = 2;
    options.checkpoint_every = 5;
    options.keep_checkpoints = 1;
    options.log_every = 1;
  }

  // w is 0.1 s after step s; nearest to 0.82 after step 8.
  TrainResult go(const std::string& name, bool resume = false, int64_t interrupted_row = -1) {
    return train([&](const auto&) { return std::make_unique<ClimbTask>(0.82, interrupted_row); }, options,
                 {.out = folder / name, .resume = resume, .resume_from = resume_from}, log);
  }

  TrainResult go_interrupted_in_validation(const std::string& name, int64_t validation) {
    const auto make = [&](const auto&) {
      auto task = std::make_unique<ClimbTask>(0.82);
      task->interrupted_validation = validation;
      return task;
    };
    return train(make, options, {.out = folder / name}, log);
  }

  // Every line but what the clock says.
  std::vector<std::string> lines_of(const std::string& name) {
    std::vector<std::string> lines;
    for (Json line : read_jsonl(metrics_path(folder / name))) {
      for (const char* clock : {"seconds", "rows_per_second"}) line.erase(clock);
      lines.push_back(line.dump());
    }
    return lines;
  }

  std::set<std::string> checkpoints(const std::string& name) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder / name / "checkpoints"))
      names.insert(entry.path().filename());
    return names;
  }

  double seconds_saved(const std::string& name) {
    const std::set<std::string> names = checkpoints(name);
    return Json::parse(read(folder / name / "checkpoints" / *names.rbegin() / "trainer_state.json")).at("seconds");
  }

  Json result_of(const std::string& name) { return Json::parse(read(result_path(folder / name))); }

  // What a reader of the newest checkpoint must see as it was.
  void flip_a_bit(const std::filesystem::path& path) {
    std::string bytes = read(path);
    bytes[bytes.size() / 2] ^= 4;
    write(path, bytes);
  }

  TrainOptions options;
  std::optional<int64_t> resume_from;
  std::ostringstream log;
};

}  // namespace fem::testing
