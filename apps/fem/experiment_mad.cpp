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
  SweepFlags flags{.out = "runs/mad"};

  MadPlan plan() const {
    MadPlan plan = mad_preset(preset);
    if (!mixers.empty()) plan.mixers = mixer_rows(mixers, letters, dialects);
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
  if (arguments.flags.from.empty())
    std::cout << "Preset " << plan.preset << ": " << cost_of(grid) << "\n" << std::flush;
  return run_sweep(grid, arguments.flags, table);
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
      "  mini    D  64, T 16 to 48, to 1,600 steps   about three hours on two cores\n"
      "  paper   D 128, T 32 to 1,024, to 20,000 steps   as published: a cluster's work\n"
      "\n"
      "Examples:\n"
      "  fem experiment mad\n"
      "  fem experiment mad --mixers softmax,delta_net --letters none,C,CLTG\n"
      "  fem experiment mad --tasks compression --mixers attention,softmax+CL\n"
      "  fem experiment mad --from experiments/mad   the table of what is there\n"
      "\n"
      "Ctrl-C saves all runs, and the same command goes on. Writes to --out what fem sweep writes.");
  const auto arguments = std::make_shared<MadArguments>();
  app->add_option("--preset", arguments->preset, "smoke, mini or paper")
      ->check(CLI::IsMember({"smoke", "mini", "paper"}))
      ->type_name("NAME")
      ->capture_default_str();
  CLI::Option* mixers = add_list(*app, "--mixers", arguments->mixers,
                                 "Token mixers, priors, rows such as softmax+CL; default: all rows of the table");
  add_list(*app, "--letters", arguments->letters,
           "Of each prior in --mixers without its own: none, C, CL, CLT, CLTG, L, LT, LTG; default none,CLTG")
      ->needs(mixers);
  add_list(*app, "--dialect", arguments->dialects,
           "Of each prior in --mixers: corrected, paper, reference; default corrected")
      ->needs(mixers);
  add_list(*app, "--tasks", arguments->tasks, "Such as in-context-recall,compression; default: the preset's");
  add_list(*app, "--seeds", arguments->seeds, "Seeds to report; 0 is the one to choose by. Default 1,2,3");
  add_list(*app, "--lr", arguments->learning_rates, "Learning rates to choose from; default: the preset's");
  add_sweep_flags(*app, arguments->flags);
  app->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace fem
