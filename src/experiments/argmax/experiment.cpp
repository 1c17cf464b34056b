#include "experiments/argmax/experiment.h"

#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <chrono>
#include <map>
#include <optional>
#include <ostream>

#include "fem/version.h"
#include "io/folder_lock.h"
#include "io/jsonl.h"
#include "io/versions.h"
#include "tasks/table.h"
#include "train/run.h"
#include "train/trainer.h"
#include "util/check.h"
#include "util/interrupt.h"
#include "util/progress.h"
#include "util/table.h"

namespace fem {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Json line_of(const ArgmaxResult& r) {
  return {{"experiment", "argmax"},     {"config", to_json(r.config)},
          {"parameters", r.parameters}, {"validation_loss", r.validation_loss},
          {"accuracy", r.accuracy},     {"seconds", r.seconds},
          {"versions", versions_json()}};
}

std::optional<ArgmaxResult> find_result(const std::filesystem::path& file, const ArgmaxConfig& config) {
  std::optional<ArgmaxResult> found;
  for (const Json& line : read_jsonl(file))
    if (line.value("config", Json()) == to_json(config)) {
      for (const char* name : {"parameters", "validation_loss", "accuracy", "seconds"})
        FEM_CHECK(line.contains(name) && line[name].is_number(), "argmax: ", file.string(), ": expected a number \"",
                  name, "\" in the line of a run, got ", line.dump().substr(0, 80), "; remove that line");
      found = {config, line.at("parameters"), line.at("validation_loss"), line.at("accuracy"), line.at("seconds")};
    }
  return found;
}

std::filesystem::path folder_of(const ArgmaxPlan& plan, const ArgmaxConfig& config) {
  return plan.out / "runs" / (config.mixer + "-seed" + std::to_string(config.seed));
}

// Trains until done (a result) or until a signal (none); either way the run's folder holds the last step.
std::optional<ArgmaxResult> train(const ArgmaxPlan& plan, const ArgmaxConfig& config) {
  const std::filesystem::path folder = folder_of(plan, config);
  if (!plan.resume) std::filesystem::remove_all(folder);
  const auto add_to_curve = [&](int64_t step, const NamedValues& measures) {
    append_jsonl(plan.out / "curve.jsonl", {{"config", to_json(config)},
                                            {"step", step},
                                            {"validation_loss", value_of(measures, "loss")},
                                            {"accuracy", value_of(measures, "accuracy")}});
  };
  const Recipe recipe = recipe_from_json(argmax_recipe(config));
  std::ostream silent(nullptr);  // the plan has been told, the progress line has the rest
  const TrainResult result = fem::train([&](const auto& start) { return recipe.make(start); }, recipe.train,
                                        {.out = folder,
                                         .resume = plan.resume,
                                         .label = config.mixer + " seed " + std::to_string(config.seed),
                                         .on_validation = add_to_curve},
                                        silent);
  if (!result.finished) return std::nullopt;
  return ArgmaxResult{config, result.parameters, value_of(result.measures, "loss"),
                      value_of(result.measures, "accuracy"), result.seconds};
}

double seconds_per_step(const ArgmaxConfig& config) {
  constexpr int kSteps = 3;
  const Recipe recipe = recipe_from_json(argmax_recipe(config));
  const std::unique_ptr<Task> task = recipe.make();
  Trainer trainer(*task, recipe.train, ProcessGroup::connect({}, std::chrono::seconds(1)));
  trainer.step();
  const Stopwatch watch;
  for (int i = 0; i < kSteps; ++i) trainer.step();
  return watch.seconds() / kSteps;
}

// A few steps of each mixer are timed, so the estimate is of this machine as it is now.
void print_cost(const ArgmaxPlan& plan, const std::vector<ArgmaxConfig>& pending, std::ostream& out) {
  std::map<std::string, double> step_seconds;
  double seconds = 0;
  for (const ArgmaxConfig& config : pending) {
    if (!step_seconds.count(config.mixer)) step_seconds[config.mixer] = seconds_per_step(config);
    seconds += config.steps * step_seconds[config.mixer];
  }
  // The key projection, forward and backward, is nearly all of the arithmetic.
  const ArgmaxConfig& run = plan.run;
  const double gflop = 6e-9 * run.batch * run.length * run.dim * run.dim;
  out << "argmax (" << plan.preset << "): " << pending.size() << (pending.size() == 1 ? " run of " : " runs of ")
      << grouped(run.steps) << " steps, D " << run.dim << ", H " << run.heads << ", T " << run.length << ", batch "
      << run.batch << "\n"
      << "estimated cost: " << fixed(gflop, gflop < 1 ? 2 : 0) << " GFLOP a step, about " << clock_text(seconds)
      << " in all with " << at::get_num_threads() << " threads\n"
      << std::flush;
}

}  // namespace

std::vector<ArgmaxResult> run_argmax(const ArgmaxPlan& plan, std::ostream& out) {
  check(plan);
  std::filesystem::create_directories(plan.out);
  const FolderLock only(plan.out, "experiment");
  const std::filesystem::path file = plan.out / "results.jsonl";
  std::vector<ArgmaxResult> results;
  std::vector<ArgmaxConfig> pending;
  for (const ArgmaxConfig& config : plan.runs()) {
    const auto known = plan.resume ? find_result(file, config) : std::nullopt;
    known ? results.push_back(*known) : pending.push_back(config);
  }
  if (!results.empty()) out << results.size() << " of " << plan.runs().size() << " runs are already complete\n";
  if (pending.empty()) return results;

  const InterruptGuard guard;
  try {
    print_cost(plan, pending, out);
  } catch (const Interrupted&) {
    return results;
  }
  for (const ArgmaxConfig& config : pending) {
    const std::optional<ArgmaxResult> result = train(plan, config);
    if (result) {
      append_jsonl(file, line_of(*result));
      std::filesystem::remove_all(folder_of(plan, config));
      results.push_back(*result);
    }
    if (interrupted()) break;
  }
  return results;
}

}  // namespace fem
