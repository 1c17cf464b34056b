#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <memory>

#include "commands.h"
#include "experiments/mad/plan.h"
#include "sweeping.h"

namespace fem {
namespace {

struct MadArguments {
  std::string preset = "mini";
  std::vector<std::string> mixers, letters{"none", "CLTG"}, dialects{"corrected"}, tasks;
  std::vector<int64_t> seeds;
  std::vector<double> learning_rates;
  int64_t jobs = default_jobs();
  std::filesystem::path out = "runs/mad", from;

  MadPlan plan() const {
    MadPlan plan = mad_preset(preset);
    plan.out = from.empty() ? out : from;
    if (!mixers.empty()) plan.mixers = mad_mixers(mixers, letters, dialects);
    if (!tasks.empty()) plan.tasks = tasks;
    if (!seeds.empty()) plan.seeds = seeds;
    if (!learning_rates.empty()) plan.learning_rates = learning_rates;
    return plan;
  }
};

int run(const MadArguments& arguments) {
  const MadPlan plan = arguments.plan();
  const Grid grid = grid_of(plan);
  const auto table = [&](const std::vector<SweepRow>& rows) {
    return "Accuracy in percent, mean over " + std::to_string(plan.seeds.size()) + " seeds:\n\n" +
           mad_table(grid, rows);
  };
  if (!arguments.from.empty()) {
    std::cout << table(sweep_rows(grid, SweepResults(sweep_results_path(plan.out))));
    return 0;
  }
  std::cout << "Preset " << plan.preset << ": " << cost_of(grid) << "\n" << std::flush;
  return run_sweep(grid, {.out = plan.out, .jobs = arguments.jobs}, table);
}

}  // namespace

void add_mad_experiment(CLI::App& experiment, int& status) {
  CLI::App* app = experiment.add_subcommand("mad", "Which mixer learns which of six synthetic tasks? (Table 1)");
  app->footer(
      "Every mixer learns every task of MAD from scratch: at each learning rate with one seed, at the best of these "
      "with the seeds that are reported. A seed decides the examples, the initial parameters and their order. All "
      "mixers have as many parameters as plain attention, or nearly.\n"
      "\n"
      "Presets:\n"
      "  smoke   two tasks, 4 steps              checks the plumbing\n"
      "  mini    D  64, T 16 to 48, 400 to 1,600 steps    about three hours on two cores\n"
      "  paper   D 128, T 32 to 1,024, 66 settings, up to 20,000 steps    as published: a cluster's work\n"
      "\n"
      "Examples:\n"
      "  fem experiment mad\n"
      "  fem experiment mad --mixers softmax,gla,delta_net --letters none,C,CLTG --tasks compression\n"
      "  fem experiment mad --from experiments/mad   the table of what is there\n"
      "\n"
      "Ctrl-C saves all runs, and the same command goes on. Writes to --out what fem sweep writes.");
  const auto arguments = std::make_shared<MadArguments>();
  app->add_option("--preset", arguments->preset, "smoke, mini or paper")
      ->check(CLI::IsMember({"smoke", "mini", "paper"}, CLI::ignore_case))
      ->type_name("NAME")
      ->capture_default_str();
  const auto list = [&](const char* name, auto& values, const char* help) {
    app->add_option(name, values, help)->delimiter(',')->allow_extra_args(false)->type_name("LIST");
  };
  list("--mixers", arguments->mixers, "Token mixers and priors; default: all rows of the table");
  list("--letters", arguments->letters,
       "Of each prior in --mixers: none, C, CL, CLT, CLTG, L, LT, LTG; default none,CLTG");
  list("--dialect", arguments->dialects, "Of each prior in --mixers: corrected, paper, reference; default corrected");
  list("--tasks", arguments->tasks, "Such as in-context-recall,compression; default: the preset's");
  list("--seeds", arguments->seeds, "Seeds to report; 0 is the one to choose by. Default 1,2,3");
  list("--lr", arguments->learning_rates, "Learning rates to choose from; default: the preset's");
  app->add_option("--jobs", arguments->jobs, "Runs at a time; default: one per core")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app->add_option("--out", arguments->out, "Folder of the sweep; default runs/mad")->type_name("DIR");
  app->add_option("--from", arguments->from, "Train nothing: the table of the results in this folder")
      ->type_name("DIR");
  app->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace fem
