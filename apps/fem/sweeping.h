// What `fem sweep` and the experiments that are sweeps have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "train/sweep.h"

namespace fem {

struct SweepFlags {
  std::filesystem::path out, from;
  int64_t jobs = 0;  // 0: one per core
};
void add_sweep_flags(CLI::App& app, SweepFlags& flags);

// --seeds 1,2,3
template <typename Values>
CLI::Option* add_list(CLI::App& app, const char* name, Values& values, const char* help) {
  return app.add_option(name, values, help)->delimiter(',')->allow_extra_args(false)->type_name("LIST");
}

// Runs what is missing of a grid, unless --from is given, and prints its table; returns the exit status.
int run_sweep(const Grid& grid, const SweepFlags& flags,
              const std::function<std::string(const std::vector<SweepRow>&)>& table);

}  // namespace fem
