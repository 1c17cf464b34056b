// One function per subcommand: it declares the options; the work starts when the command line has been read.
#pragma once

#include <memory>

namespace CLI {
class App;
}

namespace fem {

// The whole command line. Commands that may leave something undone write the exit status.
std::unique_ptr<CLI::App> make_app(int& status);

inline constexpr const char* kRecipeType = "RECIPE";  // of an argument that is a recipe's name or file

void add_info_command(CLI::App& app);
void add_letters_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_forecast_command(CLI::App& app);
void add_classify_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_completion_command(CLI::App& app);  // the last: it knows those that were added to app
void add_experiment_command(CLI::App& app, int& status);
void add_cost_experiment(CLI::App& experiment);
void add_energy_experiment(CLI::App& experiment, int& status);
void add_images_experiment(CLI::App& experiment, int& status);
void add_ladder_experiment(CLI::App& experiment, int& status);
void add_mad_experiment(CLI::App& experiment, int& status);
void add_tsf_experiment(CLI::App& experiment, int& status);
void add_inspect_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_sweep_command(CLI::App& app, int& status);  // writes the exit status, which is not 0 if a run failed

}  // namespace fem
