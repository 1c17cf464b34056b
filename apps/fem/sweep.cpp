#include "train/sweep.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include "commands.h"
#include "sweeping.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr int kFailure = 1;

struct SweepArguments {
  std::string grid;
  SweepOptions options{.jobs = default_jobs()};
};

int run(const SweepArguments& arguments) {
  SweepOptions options = arguments.options;
  if (options.out.empty()) options.out = fs::path("runs") / fs::path(arguments.grid).stem();
  const Grid grid = load_grid(arguments.grid);
  return run_sweep(grid, options, [&](const std::vector<SweepRow>& rows) { return sweep_table(grid, rows); });
}

}  // namespace

int64_t default_jobs() { return std::max<int64_t>(std::thread::hardware_concurrency(), 1); }

int run_sweep(const Grid& grid, SweepOptions options,
              const std::function<std::string(const std::vector<SweepRow>&)>& table) {
  options.program = {fs::read_symlink("/proc/self/exe").string()};
  const SweepOutcome outcome = sweep(grid, options, std::cout);
  if (outcome.interrupted) {
    std::cout << "Stopped; " << outcome.finished << " of " << outcome.runs
              << " runs are finished and those in progress are saved. The same command goes on.\n";
    return 0;
  }
  const SweepResults results(sweep_results_path(options.out));
  std::cout << "\n" << table(sweep_rows(grid, results)) << "\n";
  if (outcome.failed > 0)
    std::cout << outcome.failed << " of " << outcome.runs << " runs failed (log.txt in their folders under "
              << (options.out / "runs").string() << "); the same command tries them again.\n";
  std::cout << "Results: " << sweep_results_path(options.out).string() << "\n";
  return outcome.failed > 0 ? kFailure : 0;
}

void add_sweep_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("sweep", "Train a grid of runs, several at a time");
  command->footer(
      "A grid is a TOML file:\n"
      "  recipe = \"argmax/demo\"         # what the runs change: beside it, or shipped\n"
      "  seeds = [1, 2, 3]              # the table is of these\n"
      "  set.train.steps = 500          # changes in all runs\n"
      "  [axes.mixer]                   # an axis, and what its values change\n"
      "  fem  = { model.mixer = \"fem\" }\n"
      "  mean = { model.mixer = \"mean\" }\n"
      "  seeded = [\"train.seed\"]        # what a seed is given to, here the default\n"
      "  [choose]                       # optional: for each cell the best of these\n"
      "  seeds = [0]                    # by other seeds than those of the table\n"
      "  settings.train.learning_rate = [3e-3, 1e-2]\n"
      "\n"
      "Every run is a process of one thread. Ctrl-C saves all of them, and the same command goes on: what is "
      "finished is not run again. A failed run is told and does not end the others.\n"
      "\n"
      "Writes to --out: results.jsonl (a line per run, only ever appended), runs/NAME (as fem train does).\n"
      "\n"
      "Examples:\n"
      "  fem sweep grid.toml --out runs/grid\n"
      "  fem sweep grid.toml --out runs/grid --jobs 1");
  auto arguments = std::make_shared<SweepArguments>();
  command->add_option("grid", arguments->grid, "The grid's .toml file")->required()->type_name("GRID");
  command->add_option("--out", arguments->options.out, "Folder of the sweep; default runs/GRID")->type_name("DIR");
  command->add_option("--jobs", arguments->options.jobs, "Runs at a time; default: one per core")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace fem
