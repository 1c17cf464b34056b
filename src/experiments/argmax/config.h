// Channel-wise argmax (Appendix P of the paper): what is run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace fem {

// One run, completely.
struct ArgmaxConfig {
  std::string mixer = "fem";  // or "mean": the same prior without a free energy
  std::string prior = "softmax";
  int64_t seed = 0;  // of the data and of the initial weights
  int64_t dim = 64;
  int64_t heads = 4;
  int64_t length = 128;
  int64_t batch = 64;
  int64_t steps = 2000;
  double learning_rate = 1e-2;
  int64_t train_examples = 200000;  // cycled
  int64_t validation_examples = 2000;

  // Twenty evaluations a run; a checkpoint goes with each.
  int64_t evaluate_every() const { return steps < 20 ? 1 : steps / 20; }
};

// Several runs: every mixer on the same data, seed by seed.
struct ArgmaxPlan {
  std::string preset;
  ArgmaxConfig run = {};  // mixer and seed are set per run
  std::vector<std::string> mixers{"fem", "mean"};
  int64_t seeds = 1;
  std::filesystem::path out = "runs/argmax";
  bool resume = false;

  std::vector<ArgmaxConfig> runs() const;
};

// "smoke", "demo", "mini" or "paper".
ArgmaxPlan argmax_preset(const std::string& name);

// What fem train takes, here without the detour of a file.
nlohmann::json argmax_recipe(const ArgmaxConfig& config);

// Throws one clear sentence if the plan cannot be run.
void check(const ArgmaxPlan& plan);

nlohmann::ordered_json to_json(const ArgmaxConfig& config);

}  // namespace fem
