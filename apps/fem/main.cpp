#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <torch/headeronly/version.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>

#include "commands.h"
#include "fem/version.h"

namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

int run(int argc, char** argv) {
  CLI::App app("The Free Energy Mixer: attention whose read selects, channel by channel, instead of averaging.", "fem");
  app.set_version_flag(
      "--version",
      [] { return "fem " + fem::version() + " (torch " TORCH_VERSION ", " + fem::instruction_set() + ")"; },
      "Print the versions of fem and torch and the instruction set, and exit");
  app.require_subcommand(1);
  app.fallthrough();
  app.failure_message([](const CLI::App* parsed, const CLI::Error& error) {
    const std::vector<std::string> unknown = parsed->remaining(true);
    const std::string what = unknown.empty() ? error.what() : "nothing is known under the name " + unknown.front();
    return "fem: " + what + "\nSee fem --help, or --help after any command.\n";
  });
  app.footer(
      "Examples:\n"
      "  fem info                              what this build runs on\n"
      "  fem train 1m-fem-softmax --data a.txt a language model of your text\n"
      "  fem experiment argmax --preset demo   the paper's argmax claim in about two minutes\n"
      "  fem bench read --shapes S1,S2         the fused read against torch's attention\n"
      "\n"
      "Every command explains itself: fem experiment argmax --help");
  app.add_option_function<int>(
         "--threads", [](const int& n) { at::set_num_threads(n); }, "Threads to compute with; default: one per core")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");

  int status = 0;
  fem::add_info_command(app);
  fem::add_letters_command(app);
  fem::add_train_command(app);
  fem::add_sweep_command(app, status);
  fem::add_eval_command(app);
  fem::add_generate_command(app);
  fem::add_experiment_command(app, status);
  fem::add_bench_command(app);
  fem::add_completion_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  // Memory once had is kept: glibc would map tensors of 32 MB and more afresh, page by page, at every allocation.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  try {
    return run(argc, argv);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "fem: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fem: %s\n", error.what());
  }
  return kFailure;
}
