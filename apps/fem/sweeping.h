// What `fem sweep` and the experiments that are sweeps have in common.
#pragma once

#include <functional>

#include "train/sweep.h"

namespace fem {

// Runs what is missing of a grid and prints its table; returns the exit status. options.program is this program.
int run_sweep(const Grid& grid, SweepOptions options,
              const std::function<std::string(const std::vector<SweepRow>&)>& table);

// One run per core.
int64_t default_jobs();

}  // namespace fem
