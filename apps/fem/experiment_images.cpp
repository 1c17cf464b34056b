#include <iostream>
#include <memory>

#include "commands.h"
#include "experiments/images/plan.h"
#include "sweeping.h"

namespace fem {
namespace {

struct ImagesArguments {
  std::string preset = "mini", data;
  std::vector<std::string> mixers, letters{"none", "CLTG"};
  std::vector<int64_t> seeds;
  std::vector<double> learning_rates;
  SweepFlags flags{.out = "runs/images"};

  ImagesPlan plan() const {
    ImagesPlan plan = images_preset(preset);
    if (!data.empty()) plan.folder = data;
    if (!mixers.empty()) plan.mixers = mixer_rows(mixers, letters);
    if (!seeds.empty()) plan.seeds = seeds;
    if (!learning_rates.empty()) plan.learning_rates = learning_rates;
    return plan;
  }
};

int run_images(const ImagesArguments& arguments) {
  const ImagesPlan plan = arguments.plan();
  const Grid grid = grid_of(plan);
  if (arguments.flags.from.empty())
    std::cout << "Preset " << plan.preset << ": " << images_cost(grid) << "\n" << std::flush;
  return run_sweep(grid, arguments.flags, [&](const std::vector<SweepRow>& rows) { return sweep_table(grid, rows); });
}

}  // namespace

void add_images_experiment(CLI::App& experiment, int& status) {
  CLI::App* app = experiment.add_subcommand("images", "Which mixer makes the better encoder of pictures? (Table 3)");
  app->footer(
      "Every mixer is trained from scratch in the same encoder (patches, class token, learned positions): at each "
      "learning rate with one seed, at the rate with the best validation with the seeds that are reported. The test is "
      "looked at once, at the end. All mixers have as many parameters as plain attention, or nearly.\n"
      "\n"
      "Presets:\n"
      "  smoke   3 steps                                           checks the plumbing\n"
      "  mini    Fashion-MNIST, D 64, 2 layers, 900 steps of 64    about one core-hour\n"
      "  paper   ImageNet, DeiT-Tiny and DeiT-Small, 300 epochs    a cluster's work\n"
      "\n"
      "Examples:\n"
      "  fem experiment images                            with Debian's package dataset-fashion-mnist\n"
      "  fem experiment images --data DIR --mixers softmax,gla --letters CLTG\n"
      "  fem experiment images --from experiments/images  the table of what is there\n"
      "\n"
      "Ctrl-C saves all runs, and the same command goes on. Writes to --out what fem sweep writes.");
  const auto arguments = std::make_shared<ImagesArguments>();
  app->add_option("--preset", arguments->preset, "smoke, mini or paper")
      ->check(CLI::IsMember({"smoke", "mini", "paper"}))
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--data", arguments->data, "The pictures, as for fem classify train; default: Debian's Fashion-MNIST")
      ->type_name("DIR");
  CLI::Option* mixers =
      add_list(*app, "--mixers", arguments->mixers, "Token mixers and priors; default: all rows of the table");
  add_list(*app, "--letters", arguments->letters, "Of each prior in --mixers: none, C, CL, CLT, CLTG, ...")
      ->needs(mixers);
  add_list(*app, "--seeds", arguments->seeds, "Seeds to report; 0 is the one to choose by. Default 1,2,3");
  add_list(*app, "--lr", arguments->learning_rates, "Learning rates to choose from; default: the preset's");
  add_sweep_flags(*app, arguments->flags);
  app->callback([arguments, &status] { status = run_images(*arguments); });
}

}  // namespace fem
