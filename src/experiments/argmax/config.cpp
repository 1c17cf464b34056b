#include "experiments/argmax/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tasks/argmax/task.h"
#include "util/check.h"

namespace fem {

std::vector<ArgmaxConfig> ArgmaxPlan::runs() const {
  std::vector<ArgmaxConfig> all;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    for (const std::string& mixer : mixers) {
      all.push_back(run);
      all.back().mixer = mixer;
      all.back().seed = seed;
    }
  }
  return all;
}

ArgmaxPlan argmax_preset(const std::string& name) {
  ArgmaxPlan plan{.preset = name};
  if (name == "smoke") {
    plan.run = {.dim = 32, .length = 32, .steps = 200, .validation_examples = 256};
  } else if (name == "demo") {
    plan.run = {.dim = 64};
  } else if (name == "mini") {
    plan.run = {.dim = 64};
    plan.seeds = 3;
  } else if (name == "paper") {
    plan.run = {.dim = 512};
  } else {
    FEM_CHECK(false, "argmax: expected --preset smoke, demo, mini or paper, got '", name, "'");
  }
  return plan;
}

nlohmann::json argmax_recipe(const ArgmaxConfig& c) {
  return {
      {"task", "argmax"},
      {"model", {{"mixer", c.mixer}, {"prior", c.prior}, {"dim", c.dim}, {"heads", c.heads}}},
      {"data",
       {{"length", c.length}, {"train_examples", c.train_examples}, {"validation_examples", c.validation_examples}}},
      {"train",
       {{"steps", c.steps},
        {"batch", c.batch},
        {"learning_rate", c.learning_rate},
        {"final_learning_rate", 1.0},
        {"warmup_steps", 0},
        {"beta2", 0.999},
        {"weight_decay", 0.01},
        {"clip", 0.0},
        {"seed", c.seed},
        {"precision", "float32"},
        {"validate_every", c.evaluate_every()},
        {"validate_first", true},
        {"checkpoint_every", c.evaluate_every()},
        {"keep_checkpoints", 1},
        {"log_every", c.evaluate_every()}}}};
}

void check(const ArgmaxPlan& plan) {
  FEM_CHECK(plan.seeds >= 1 && plan.seeds <= 10000, "argmax: expected --seeds from 1 to 10,000, got ", plan.seeds);
  FEM_CHECK(!plan.mixers.empty(), "argmax: expected --mixers fem, mean or both, got none");
  for (const std::string& mixer : plan.mixers)
    FEM_CHECK(std::count(plan.mixers.begin(), plan.mixers.end(), mixer) == 1,
              "argmax: expected each of --mixers once, got '", mixer, "' twice");
  ArgmaxConfig config = plan.run;
  for (const std::string& mixer : plan.mixers) {
    config.mixer = mixer;
    argmax_options_from_json(recipe_from_json(argmax_recipe(config)).sections);
  }
}

nlohmann::ordered_json to_json(const ArgmaxConfig& c) {
  return {{"mixer", c.mixer},
          {"prior", c.prior},
          {"seed", c.seed},
          {"dim", c.dim},
          {"heads", c.heads},
          {"length", c.length},
          {"batch", c.batch},
          {"steps", c.steps},
          {"learning_rate", c.learning_rate},
          {"train_examples", c.train_examples},
          {"validation_examples", c.validation_examples}};
}

}  // namespace fem
