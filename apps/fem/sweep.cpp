#include "train/sweep.h"

#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include "commands.h"
#include "sweeping.h"
#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr int kFailure = 1;

struct SweepArguments {
  std::string grid;
  SweepFlags flags;
};

int run(const SweepArguments& arguments) {
  SweepFlags flags = arguments.flags;
  if (flags.out.empty()) flags.out = fs::path("runs") / fs::path(arguments.grid).stem();
  const Grid grid = load_grid(arguments.grid);
  return run_sweep(grid, flags, [&](const std::vector<SweepRow>& rows) { return sweep_table(grid, rows); });
}

}  // namespace

void add_sweep_flags(CLI::App& app, SweepFlags& flags) {
  const std::string out = flags.out.empty() ? "runs/GRID" : flags.out.string();
  app.add_option("--out", flags.out, "Folder of the sweep; default " + out)->type_name("DIR");
  app.add_option("--jobs", flags.jobs, "Runs at a time; default: one per core")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app.add_option("--from", flags.from, "Train nothing: the table of the results in this folder")->type_name("DIR");
}

int run_sweep(const Grid& grid, const SweepFlags& flags,
              const std::function<std::string(const std::vector<SweepRow>&)>& table) {
  const auto table_of = [&](const fs::path& folder) {
    return table(sweep_rows(grid, SweepResults(sweep_results_path(folder))));
  };
  if (!flags.from.empty()) {
    FEM_CHECK(fs::exists(sweep_results_path(flags.from)),
              "--from: expected the folder of a sweep, with results.jsonl, got ", flags.from.string());
    std::cout << table_of(flags.from);
    return 0;
  }
  const int64_t cores = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  const SweepOutcome outcome = sweep(grid,
                                     {.out = flags.out,
                                      .jobs = flags.jobs > 0 ? flags.jobs : cores,
                                      .program = {fs::read_symlink("/proc/self/exe").string()}},
                                     std::cout);
  if (outcome.interrupted) {
    std::cout << "Stopped; " << outcome.finished << " of " << outcome.runs
              << " runs are finished and those in progress are saved. The same command goes on.\n";
    return 0;
  }
  std::cout << "\n" << table_of(flags.out) << "\n";
  if (outcome.failed > 0)
    std::cout << outcome.failed << " of " << outcome.runs << " runs failed (log.txt in their folders under "
              << (flags.out / "runs").string() << "); the same command tries them again.\n";
  std::cout << "Results: " << sweep_results_path(flags.out).string() << "\n";
  return outcome.failed > 0 ? kFailure : 0;
}

void add_sweep_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("sweep", "Train a grid of runs, several at a time");
  command->footer(
      "A grid is a TOML file:\n"
      "  recipe = \"argmax/demo\"         # what the runs change: beside it, or shipped\n"
      "  seeds = [1, 2, 3]              # the table is of these\n"
      "  seeded = [\"train.seed\"]        # what a seed is given to, optional\n"
      "  set.train.steps = 500          # changes in all runs\n"
      "  [axes.mixer]                   # an axis, and what its values change\n"
      "  fem  = { model.mixer = \"fem\" }\n"
      "  mean = { model.mixer = \"mean\" }\n"
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
  add_sweep_flags(*command, arguments->flags);
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace fem
