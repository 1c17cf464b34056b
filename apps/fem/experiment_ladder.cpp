#include <memory>

#include "commands.h"
#include "experiments/ladder/plan.h"
#include "sweeping.h"

namespace fem {
namespace {

struct LadderArguments {
  std::vector<std::string> texts, priors{"softmax", "gla"}, letters{"none", "C", "CL", "CLT", "CLTG"};
  LadderPlan plan;
  SweepFlags flags{.out = "runs/ladder"};
};

int run(const LadderArguments& arguments) {
  LadderPlan plan = arguments.plan;
  plan.mixers = mixer_rows({"attention"}, {});
  for (const MixerRow& row : mixer_rows(arguments.priors, arguments.letters)) plan.mixers.push_back(row);
  for (const std::string& text : arguments.texts) plan.texts.push_back(ladder_text(text));
  if (arguments.flags.from.empty())
    for (const LadderText& text : plan.texts) expect_files(text);
  const Grid grid = grid_of(plan);
  return run_sweep(grid, arguments.flags, [&](const std::vector<SweepRow>& rows) {
    return "Validation loss in nats a byte, mean ± standard error over " + std::to_string(plan.seeds.size()) +
           " seeds:\n\n" + ladder_table(grid, rows);
  });
}

}  // namespace

void add_ladder_experiment(CLI::App& experiment, int& status) {
  CLI::App* app = experiment.add_subcommand("ladder", "Which letter makes a language model better?");
  app->footer(
      "Small language models of half a million parameters each, bytes for tokens: plain attention, and each prior with "
      "more and more of the paper's parts (C conditioner, L log-sum-exp read, T temperature, G outer gate) at the same "
      "number of parameters. The learning rate is chosen for every rung on seed 0 of the first text.\n"
      "\n"
      "Examples:\n"
      "  fem experiment ladder --text plays=input.txt --text wiki=train.txt,valid.txt\n"
      "  fem experiment ladder --text plays=input.txt --priors gla --letters none,CLTG\n"
      "\n"
      "Ctrl-C saves all runs, and the same command goes on. Writes to --out what fem sweep writes.");
  const auto arguments = std::make_shared<LadderArguments>();
  app->add_option("--text", arguments->texts, "A name and its file, or files of training and validation")
      ->required()
      ->type_name("NAME=FILE[,FILE]")
      ->allow_extra_args(false);
  add_list(*app, "--priors", arguments->priors, "Default softmax,gla");
  add_list(*app, "--letters", arguments->letters, "Default none,C,CL,CLT,CLTG");
  add_list(*app, "--seeds", arguments->plan.seeds, "Seeds to report; 0 is the one to choose by. Default 1,2,3");
  add_list(*app, "--lr", arguments->plan.learning_rates, "Learning rates to choose from; default 0.001,0.003,0.01");
  app->add_option("--steps", arguments->plan.steps, "Steps of a run; default 400")->type_name("N");
  add_sweep_flags(*app, arguments->flags);
  app->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace fem
