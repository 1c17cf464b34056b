#include "experiments/argmax/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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

PriorType argmax_prior(const ArgmaxConfig& config) {
  std::string known;
  for (const auto& [name, prior] : Spelling<PriorType>::values) {
    if (name == config.prior) return prior;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  FEM_CHECK(false, "argmax: expected --prior out of ", known, ", got '", config.prior, "'");
}

void check(const ArgmaxPlan& plan) {
  const ArgmaxConfig& run = plan.run;
  for (const auto& [name, value] : {std::pair{"--seeds", plan.seeds},
                                    {"--steps", run.steps},
                                    {"--dim", run.dim},
                                    {"--heads", run.heads},
                                    {"--batch", run.batch}})
    FEM_CHECK(value >= 1, "argmax: expected ", name, " of at least 1, got ", value);
  FEM_CHECK(plan.seeds <= 10000, "argmax: expected --seeds of at most 10,000, got ", plan.seeds);
  FEM_CHECK(run.length >= 2, "argmax: expected --length of at least 2 tokens to choose from, got ", run.length);
  FEM_CHECK(run.dim % run.heads == 0, "argmax: expected --dim divisible by --heads, got ", run.dim, " and ", run.heads);
  FEM_CHECK(run.learning_rate > 0, "argmax: expected a positive --lr, got ", run.learning_rate);
  FEM_CHECK(argmax_prior(run) == PriorType::kSoftmax || run.dim % (4 * run.heads) == 0,
            "argmax: expected --dim to be a ", "multiple of four times --heads with --prior ", run.prior, ", got ",
            run.dim, " and ", run.heads);
  FEM_CHECK(!plan.mixers.empty(), "argmax: expected --mixers fem, mean or both, got none");
  for (const std::string& mixer : plan.mixers) {
    FEM_CHECK(mixer == "fem" || mixer == "mean", "argmax: expected --mixers fem, mean or both, got '", mixer, "'");
    FEM_CHECK(std::count(plan.mixers.begin(), plan.mixers.end(), mixer) == 1,
              "argmax: expected each of --mixers once, got '", mixer, "' twice");
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
