// The paper's Table 1: mixers on the six tasks of MAD, as a grid of runs.
#pragma once

#include <string>
#include <vector>

#include "experiments/mixer_rows.h"
#include "train/sweep.h"

namespace fem {

struct MadPlan {
  std::string preset;
  std::vector<MixerRow> mixers;
  std::vector<std::string> tasks;  // recipes in configs/mad
  std::vector<int64_t> seeds;      // that are reported; of the data, of the initial parameters and of the order
  int64_t choosing_seed = 0;       // by which each mixer's learning rate is chosen for each task
  std::vector<double> learning_rates;
};

MadPlan mad_preset(const std::string& name);

// Axes mixer and task. A task of preset paper is a task in one of its published settings, "memorization V=512".
// Throws one sentence if the plan cannot be run.
Grid grid_of(const MadPlan& plan);

// What a grid costs: "1,044 runs, 920,000 steps, 1,100 million tokens, 0.7 PFLOP".
std::string cost_of(const Grid& grid);

// Accuracy in percent, a line for each mixer: mean over the seeds of each task, averaged over the settings of the
// task, and the average of the tasks.
std::string mad_table(const Grid& grid, const std::vector<SweepRow>& rows);

}  // namespace fem
