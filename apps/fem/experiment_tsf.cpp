#include <algorithm>
#include <iostream>
#include <memory>

#include "commands.h"
#include "experiments/tsf/table.h"
#include "sweeping.h"
#include "util/interrupt.h"

namespace fem {
namespace {

struct TsfArguments {
  std::string preset = "mini";
  std::filesystem::path data = "data";
  std::vector<std::string> mixers, letters{"none", "CLTG"}, bodies, tables;
  std::vector<int64_t> seeds;
  int64_t input = 0;
  SweepFlags flags{.out = "runs/tsf"};

  TsfPlan plan() const {
    TsfPlan plan = tsf_preset(preset);
    if (flags.from.empty()) plan.data = data;
    if (!mixers.empty() || !bodies.empty()) {
      plan.mixers = mixer_rows(mixers, letters);
      plan.bodies = bodies;
    }
    if (!tables.empty()) plan.columns = tables;
    if (!seeds.empty()) plan.seeds = seeds;
    plan.input = input;
    return plan;
  }
};

// A sweep for every table, in a folder of its name.
int run_tsf(const TsfArguments& arguments) {
  const TsfPlan plan = arguments.plan();
  const std::vector<TsfPlan> parts = by_table(plan);
  if (arguments.flags.from.empty())
    std::cout << "Preset " << plan.preset << ": " << tsf_cost(grid_of(plan)) << "\n" << std::flush;
  int status = 0;
  for (const TsfPlan& part : parts) {
    const Grid grid = grid_of(part);
    SweepFlags flags = arguments.flags;
    for (std::filesystem::path* folder : {&flags.out, &flags.from})
      if (!folder->empty()) *folder /= part.table();
    status = std::max(status, run_sweep(grid, flags, [&](const std::vector<SweepRow>& rows) {
                        SweepResults results(sweep_results_path(flags.from.empty() ? flags.out : flags.from));
                        if (flags.from.empty()) measure_ridge(part, results);
                        return part.table() + ": test MSE, standardised, mean over " +
                               std::to_string(part.seeds.size()) + " seeds:\n\n" + tsf_table(part, rows, results);
                      }));
    if (interrupt_signal() != 0) break;
  }
  return status;
}

}  // namespace

void add_tsf_experiment(CLI::App& experiment, int& status) {
  CLI::App* app = experiment.add_subcommand("tsf", "Which mixer forecasts public tables best? (Table 4)");
  app->footer(
      "Every model learns every table and horizon from scratch, with the published rows, windows and input; the test "
      "is measured with the parameters that validation chose. A model's learning rate is chosen by validation on seed "
      "0, at 96 for horizons to 192 and at 336 for longer ones. All mixers have as many parameters as plain attention, "
      "or nearly. Ridge, in closed form, is measured beside them. Tables come from scripts/get_data, into --data.\n"
      "\n"
      "Presets:\n"
      "  smoke   ETTh1 (96, 192), 2 steps    checks the plumbing\n"
      "  mini    ETTh1, ETTh2, ETTm1 (96, 192), 400 to 2,000 steps    about two core-hours\n"
      "  medium  ETTh1, ETTh2, as many steps, published rates and batch (32, not 4)    some eight core-hours\n"
      "  paper   five tables, up to 100 passes, as published    weeks on two cores\n"
      "\n"
      "Examples:\n"
      "  fem experiment tsf --data data\n"
      "  fem experiment tsf --bodies ridge,dlinear --tables 'ETTh1 96'\n"
      "  fem experiment tsf --from experiments/tsf   the table of what is there\n"
      "\n"
      "Ctrl-C saves all runs, and the same command goes on. Writes to a folder of each table in --out what fem sweep "
      "writes.");
  const auto arguments = std::make_shared<TsfArguments>();
  app->add_option("--preset", arguments->preset, "smoke, mini, medium or paper")
      ->check(CLI::IsMember({"smoke", "mini", "medium", "paper"}))
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--data", arguments->data, "Folder of ETTh1.csv and the others, or .csv.gz")
      ->type_name("DIR")
      ->capture_default_str();
  CLI::Option* mixers = add_list(*app, "--mixers", arguments->mixers, "Token mixers and priors; default: the preset's");
  add_list(*app, "--letters", arguments->letters,
           "Of each prior in --mixers: none, C, CL, CLT, CLTG, L, LT, LTG; default none,CLTG")
      ->needs(mixers);
  add_list(*app, "--bodies", arguments->bodies, "ridge, dlinear, patches (PatchTST), inverted (iTransformer)");
  add_list(*app, "--tables", arguments->tables, "Tables with horizons, such as 'ETTh1 96,ETTh1 192'");
  app->add_option("--input", arguments->input, "Rows that mixers read; default as published: 1024, 2048 or 4096")
      ->check(CLI::PositiveNumber)
      ->type_name("ROWS");
  add_list(*app, "--seeds", arguments->seeds, "Seeds to report; 0 is the one to choose by. Default 1,2,3");
  add_sweep_flags(*app, arguments->flags);
  app->callback([arguments, &status] { status = run_tsf(*arguments); });
}

}  // namespace fem
