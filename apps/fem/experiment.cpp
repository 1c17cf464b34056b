#include "experiments/argmax/experiment.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <memory>

#include "commands.h"
#include "util/plot.h"

namespace fem {
namespace {

// The command line: a preset, and what the user changes of it.
struct ArgmaxArguments {
  std::string preset = "mini";
  std::vector<std::function<void(ArgmaxPlan&)>> changes;

  ArgmaxPlan plan() const {
    ArgmaxPlan plan = argmax_preset(preset);
    for (const auto& change : changes) change(plan);
    return plan;
  }
};

void run(const ArgmaxPlan& plan) {
  const std::vector<ArgmaxResult> results = run_argmax(plan, std::cout);
  if (results.size() < plan.runs().size()) {
    std::cout << "Stopped; " << results.size() << " of " << plan.runs().size()
              << " runs are complete and the one in progress is saved. Add --resume to the same command to continue.\n";
    return;
  }
  print_argmax_report(plan, results, std::cout);
  std::cout << "Results: " << (plan.out / "results.jsonl").string() << "\n" << std::flush;
  const PlotCommand plot = plot_command("plot_argmax.py", {plan.out.string()});
  std::cout << (draw(plot) ? "Picture: " + (plan.out / "argmax.png").string() : plot.by_hand()) << "\n";
}

void add_argmax(CLI::App& experiment) {
  CLI::App* app = experiment.add_subcommand("argmax", "Can one read find every channel's largest value? (Figure 3)");
  app->footer(
      "Every channel's largest value stands at a token of its own, and one read at the last token must return them "
      "all (the paper's Appendix P). A free-energy read can; a convex mixture, such as softmax attention, cannot.\n"
      "\n"
      "Presets:\n"
      "  smoke   D  32, T  32,   200 steps, 1 seed    checks the plumbing\n"
      "  demo    D  64, T 128, 2,000 steps, 1 seed    of scripts/demo\n"
      "  mini    D  64, T 128, 2,000 steps, 3 seeds   the default\n"
      "  paper   D 512, T 128, 2,000 steps, 1 seed    the published size\n"
      "\n"
      "Examples:\n"
      "  fem experiment argmax --preset demo\n"
      "  fem experiment argmax --preset mini --dim 128 --seeds 5 --out runs/wide\n"
      "  fem experiment argmax --preset paper --resume   goes on after Ctrl-C\n"
      "\n"
      "Writes to --out: results.jsonl (a line per run), curve.jsonl (a line per evaluation), argmax.png. One of "
      "these runs by itself: fem train argmax/demo");

  auto arguments = std::make_shared<ArgmaxArguments>();
  app->add_option("--preset", arguments->preset, "smoke, demo, mini or paper")
      ->check(CLI::IsMember({"smoke", "demo", "mini", "paper"}))
      ->type_name("NAME")
      ->capture_default_str();
  const auto option = [&]<typename T>(const char* name, const char* type, const char* help, T& (*field)(ArgmaxPlan&)) {
    return app
        ->add_option_function<T>(
            name,
            [arguments, field](const T& value) {
              arguments->changes.push_back([field, value](ArgmaxPlan& plan) { field(plan) = value; });
            },
            help)
        ->type_name(type);
  };
  using Plan = ArgmaxPlan;
  option("--seeds", "N", "Seeds 0 ... N - 1", +[](Plan& p) -> int64_t& { return p.seeds; });
  option("--steps", "N", "Training steps", +[](Plan& p) -> int64_t& { return p.run.steps; });
  option("--dim", "D", "Channels", +[](Plan& p) -> int64_t& { return p.run.dim; });
  option("--heads", "H", "Heads; each has one selection prior", +[](Plan& p) -> int64_t& { return p.run.heads; });
  option("--length", "T", "Tokens", +[](Plan& p) -> int64_t& { return p.run.length; });
  option("--batch", "B", "Examples a step", +[](Plan& p) -> int64_t& { return p.run.batch; });
  option("--lr", "X", "AdamW's learning rate", +[](Plan& p) -> double& { return p.run.learning_rate; });
  option(
      "--prior", "NAME", "Selection prior of both mixers: softmax, linear, gla, rnn_softmax, rnn_decay or mamba",
      +[](Plan& p) -> std::string& { return p.run.prior; });
  option(
      "--mixers", "LIST", "fem, mean or fem,mean", +[](Plan& p) -> std::vector<std::string>& { return p.mixers; })
      ->delimiter(',')
      ->allow_extra_args(false);
  option(
      "--out", "DIR", "Where results go; default runs/argmax",
      +[](Plan& p) -> std::filesystem::path& { return p.out; });
  app->add_flag_callback(
      "--resume", [arguments] { arguments->changes.push_back([](Plan& p) { p.resume = true; }); },
      "Skip finished runs of this configuration and continue an interrupted one exactly");
  app->callback([arguments] { run(arguments->plan()); });
}

}  // namespace

void add_experiment_command(CLI::App& app, int& status) {
  CLI::App* experiment = app.add_subcommand("experiment", "Repeat an experiment of the paper");
  experiment->require_subcommand(1);
  experiment->fallthrough();
  experiment->footer("Example:\n  fem experiment argmax --preset demo");
  add_argmax(*experiment);
  add_cost_experiment(*experiment);
  add_energy_experiment(*experiment, status);
  add_images_experiment(*experiment, status);
  add_ladder_experiment(*experiment, status);
  add_mad_experiment(*experiment, status);
  add_tsf_experiment(*experiment, status);
}

}  // namespace fem
