#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <CLI/CLI.hpp>

#include "commands.h"
#include "fem/version.h"
#include "help.h"
#include "util/nearest.h"

namespace fem {
namespace {

// Every word that may stand after a command: its subcommands and options, and the options of those above it.
std::vector<std::string> words_after(const CLI::App* command) {
  std::vector<std::string> words;
  for (const CLI::App* one : command->get_subcommands({})) words.push_back(one->get_name());
  for (; command; command = command->get_parent())
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  return words;
}

std::string usage_error(const CLI::App* command, const CLI::Error& error) {
  const std::vector<std::string> unknown = command->remaining(true);
  std::string what = error.what();
  if (!unknown.empty()) {
    const std::string& word = unknown.front();
    while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
    what = "nothing is known under the name " + word + did_you_mean(word, words_after(command));
  }
  return "fem: " + what + "\nSee fem --help, or --help after any command.\n";
}

}  // namespace

std::unique_ptr<CLI::App> make_app(int& status) {
  auto app = std::make_unique<CLI::App>(
      "The Free Energy Mixer: attention whose read selects, channel by channel, instead of averaging.", "fem");
  app->formatter(std::make_shared<Help>());
  app->set_version_flag(
      "--version", [] { return "fem " + version() + " (torch " TORCH_VERSION ", " + instruction_set() + ")"; },
      "Print the versions of fem and torch and the instruction set, and exit");
  app->require_subcommand(1);
  app->fallthrough();
  app->failure_message(usage_error);
  app->footer(
      "Examples:\n"
      "  fem info                               what this build runs on\n"
      "  fem train 1m-fem-softmax --data a.txt  a language model of your text\n"
      "  fem forecast train --csv table.csv     the next rows of your table\n"
      "  fem classify train --data pictures     what is on your pictures\n"
      "  fem inspect runs/book --text 'To be'   which token every channel chose\n"
      "  fem experiment argmax --preset demo    the paper's argmax claim\n"
      "  fem bench read --shapes S1,S2          the read against torch's attention\n"
      "\n"
      "Every command explains itself: fem experiment argmax --help\n"
      "A signal (Ctrl-C) ends a command when it has saved or shown what it has, with the status 128 + signal.");
  app->add_option_function<int>(
         "--threads", [](const int& n) { at::set_num_threads(n); }, "Threads to compute with; default: one per core")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  add_info_command(*app);
  add_letters_command(*app);
  add_train_command(*app);
  add_sweep_command(*app, status);
  add_eval_command(*app);
  add_generate_command(*app);
  add_forecast_command(*app);
  add_classify_command(*app);
  add_experiment_command(*app, status);
  add_report_command(*app);
  add_inspect_command(*app);
  add_bench_command(*app);
  add_completion_command(*app);
  return app;
}

}  // namespace fem
