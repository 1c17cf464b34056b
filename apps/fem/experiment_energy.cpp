#include <iostream>
#include <memory>

#include "commands.h"
#include "experiments/energy/bridge.h"
#include "experiments/energy/plan.h"
#include "experiments/energy/toy.h"
#include "sweeping.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGoesOn =
    "\n\nCtrl-C saves all runs, and the same command goes on. Writes to --out what fem sweep writes.";

// Of both grids: a preset, and what the user changes of it.
struct EnergyArguments {
  std::string preset = "mini";
  std::vector<std::string> variants, texts;
  std::vector<int64_t> seeds;
  std::vector<double> learning_rates;
  SweepFlags flags;

  EnergyPlan plan() const {
    EnergyPlan plan = energy_preset(preset);
    if (!variants.empty()) plan.variants = energy_variants(variants);
    if (!seeds.empty()) plan.seeds = seeds;
    if (!learning_rates.empty()) plan.learning_rates = learning_rates;
    return plan;
  }
};

int run(const EnergyArguments& arguments, const Grid& grid) {
  if (arguments.flags.from.empty())
    std::cout << "Preset " << arguments.preset << ": " << energy_cost(grid) << "\n" << std::flush;
  return run_sweep(grid, arguments.flags, [&](const std::vector<SweepRow>& rows) { return sweep_table(grid, rows); });
}

std::string variant_names() {
  std::string names;
  for (const EnergyVariant& variant : energy_variants()) names += (names.empty() ? "" : ", ") + variant.label;
  return names;
}

std::shared_ptr<EnergyArguments> add_grid_options(CLI::App& app, const char* out) {
  const auto arguments = std::make_shared<EnergyArguments>();
  arguments->flags.out = out;
  app.add_option("--preset", arguments->preset, "smoke, mini or large")
      ->check(CLI::IsMember({"smoke", "mini", "large"}))
      ->type_name("NAME")
      ->capture_default_str();
  add_list(app, "--variants", arguments->variants, ("Of " + variant_names() + "; default: all").c_str());
  add_list(app, "--seeds", arguments->seeds, "Seeds to report; 0 is the one to choose by. Default 1,2,3");
  add_list(app, "--lr", arguments->learning_rates, "Learning rates to choose from; default 0.001,0.003,0.01");
  add_sweep_flags(app, arguments->flags);
  return arguments;
}

void add_language(CLI::App& energy, int& status) {
  CLI::App* app = energy.add_subcommand("lm", "Validation loss against steps of small language models (Figure 1)");
  app->footer(
      std::string("Bytes for tokens; the learning rate is chosen for every variant and text on seed 0, and the whole "
                  "curve of every run is kept.\n"
                  "\n"
                  "Presets:\n"
                  "  smoke   4 steps                                 checks the plumbing\n"
                  "  mini    D  64, 6 blocks, T 128, 600 steps       about a minute a run and core\n"
                  "  large   D 320, 8 blocks, T 512, 5,000 steps     hours a run; the paper's sizes are not known\n"
                  "\n"
                  "Examples:\n"
                  "  fem experiment energy lm --text plays=input.txt\n"
                  "  fem experiment energy lm --text plays=input.txt --variants attention,fem\n"
                  "  fem report runs/energy-lm --out energy.html") +
      kGoesOn);
  const auto arguments = add_grid_options(*app, "runs/energy-lm");
  app->add_option("--text", arguments->texts, "A name and its file, or files of training and validation")
      ->required()
      ->type_name("NAME=FILE[,FILE]")
      ->allow_extra_args(false);
  app->callback([arguments, &status] {
    std::vector<LadderText> texts;
    for (const std::string& text : arguments->texts) texts.push_back(ladder_text(text));
    if (arguments->flags.from.empty())
      for (const LadderText& text : texts) expect_files(text);
    status = run(*arguments, language_grid(arguments->plan(), texts));
  });
}

void add_lis(CLI::App& energy, int& status) {
  CLI::App* app = energy.add_subcommand("lis", "The same variants on longest increasing subsequences");
  app->footer(std::string("How long is the longest increasing subsequence so far? (fem train mad/longest-increasing)\n"
                          "\n"
                          "Presets:\n"
                          "  smoke   4 steps                            checks the plumbing\n"
                          "  mini    D  64, 4 blocks, T  32,    800 steps   half a minute a run and core\n"
                          "  large   D 128, 8 blocks, T 128, 10,000 steps   hours a run\n"
                          "\n"
                          "Examples:\n"
                          "  fem experiment energy lis\n"
                          "  fem experiment energy lis --variants attention,attention+gain") +
              kGoesOn);
  const auto arguments = add_grid_options(*app, "runs/energy-lis");
  app->callback([arguments, &status] { status = run(*arguments, lis_grid(arguments->plan())); });
}

struct ToyArguments {
  ToyPlan plan;
  fs::path out = "runs/energy-toy", from;
};

// The table of what is in a folder that was given, or was just written to.
void show(const Grid& grid, const fs::path& out, const fs::path& from) {
  const fs::path results = sweep_results_path(from.empty() ? out : from);
  std::cout << sweep_table(grid, sweep_rows(grid, SweepResults(results)));
  if (from.empty()) std::cout << "\nResults: " << results.string() << "\n";
}

void add_folders(CLI::App& app, fs::path& out, fs::path& from) {
  app.add_option("--out", out, "Folder of the results; default " + out.string())->type_name("DIR");
  app.add_option("--from", from, "Compute nothing: the table of the results in this folder")->type_name("DIR");
}

void run(const ToyArguments& arguments) {
  if (arguments.from.empty()) run_toy(arguments.plan, arguments.out);
  show(toy_grid(arguments.plan), arguments.out, arguments.from);
}

void add_toy(CLI::App& energy) {
  CLI::App* app = energy.add_subcommand("toy", "F* layer by layer where weights are tied, for each rule");
  app->footer(
      "Queries descend on the free energy of fixed keys (fem/energy.h), a layer a step: by descent, with momentum, by "
      "Newton's method, exact or cut short. The table has F* after the last layer (the median of the queries), of "
      "how many it has risen, and at how many of the first places the Hessian is indefinite, where an exact Newton "
      "step need not lead down. Seconds.\n"
      "\n"
      "Examples:\n"
      "  fem experiment energy toy\n"
      "  fem experiment energy toy --temperatures 1,0.1 --layers 32 --out runs/cold\n"
      "  fem report runs/energy-toy --out toy.html   the curves");
  const auto arguments = std::make_shared<ToyArguments>();
  add_list(*app, "--temperatures", arguments->plan.temperatures, "Default 4,1,0.5,0.25");
  add_list(*app, "--seeds", arguments->plan.seeds, "Of keys and queries; default 1,2,3");
  app->add_option("--layers", arguments->plan.layers, "Steps; default 8")->check(CLI::Range(1, 10000))->type_name("N");
  app->add_option("--rate", arguments->plan.rate, "Length of a step; default 0.3")->type_name("X");
  app->add_option("--decay", arguments->plan.decay, "Of a velocity; default 0.5")
      ->check(CLI::Range(0.0, 0.999))
      ->type_name("X");
  add_folders(*app, arguments->out, arguments->from);
  app->callback([arguments] { run(*arguments); });
}

struct BridgeArguments {
  BridgePlan plan;
  std::vector<std::string> models;
  fs::path out = "runs/energy-bridge", from;
};

void run(const BridgeArguments& arguments) {
  BridgePlan plan = arguments.plan;
  for (const std::string& model : arguments.models) plan.models.push_back(bridge_model(model));
  if (arguments.from.empty()) run_bridge(plan, arguments.out);
  show(bridge_grid(plan), arguments.out, arguments.from);
}

void add_bridge(CLI::App& energy) {
  CLI::App* app = energy.add_subcommand("bridge", "What layers of trained models do to the energy of their own prior");
  app->footer(
      "How far does the free energy of a layer's keys fall at its queries when the layer's update is added, beside a "
      "step as long down the gradient (docs/bridge.md)? Takes folders of models or runs with plain attention, or with "
      "the Free Energy Mixer over softmax; several of one name are one model trained several times. Seconds a model.\n"
      "\n"
      "Examples:\n"
      "  fem experiment energy bridge --text book.txt --model attention=runs/a\n"
      "  fem report runs/energy-bridge --out bridge.html   the curves");
  const auto arguments = std::make_shared<BridgeArguments>();
  app->add_option("--model", arguments->models, "A name and the folder of a model or run")
      ->required()
      ->type_name("NAME=FOLDER")
      ->allow_extra_args(false);
  app->add_option("--text", arguments->plan.text, "The text; its last tenth is read")->required()->type_name("FILE");
  app->add_option("--rows", arguments->plan.rows, "Rows of tokens; default 16")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  app->add_option("--length", arguments->plan.length, "Tokens of a row; default 128")
      ->check(CLI::Range(2, 4096))
      ->type_name("N");
  add_folders(*app, arguments->out, arguments->from);
  app->callback([arguments] { run(*arguments); });
}

}  // namespace

void add_energy_experiment(CLI::App& experiment, int& status) {
  CLI::App* app = experiment.add_subcommand("energy", "Is attention better off as a cleverer descent? (2511.00907)");
  app->footer(
      "A block as a step down an energy, and what momentum, Nesterov's look-ahead and curvature do to it "
      "(docs/energy.md).\n"
      "\n"
      "Examples:\n"
      "  fem experiment energy toy\n"
      "  fem experiment energy lm --text plays=input.txt");
  app->require_subcommand(1);
  app->fallthrough();
  add_language(*app, status);
  add_lis(*app, status);
  add_toy(*app);
  add_bridge(*app);
}

}  // namespace fem
