// The paper's Table 4: forecasts of public tables, as a grid of runs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/windows.h"
#include "experiments/mixer_rows.h"
#include "train/sweep.h"

namespace fem {

// A public table, cut as published.
struct TsfTable {
  std::string name;  // its file is NAME.csv or NAME.csv.gz
  int64_t columns;
  SeriesSplit split;
};
const std::vector<TsfTable>& tsf_tables();

struct TsfPlan {
  std::string preset;
  std::filesystem::path data;        // the folder of the tables; empty: its runs are only read
  std::vector<MixerRow> mixers;      // on the backbone
  std::vector<std::string> bodies;   // to compare with: ridge, dlinear, patches, inverted
  std::vector<std::string> columns;  // "ETTh1 96"
  std::vector<int64_t> seeds;        // that are reported
  int64_t input = 0;                 // rows that the mixers read; 0: as published, by the horizon
  int64_t choosing_seed = 0;  // by which each model's learning rate is chosen, for horizons to 192 and for longer ones

  std::string table() const { return columns.front().substr(0, columns.front().find(' ')); }
};

TsfPlan tsf_preset(const std::string& name);

// The same plan, one table at a time.
std::vector<TsfPlan> by_table(const TsfPlan& plan);

// Axes model and table, such as "softmax+CLTG" or "softmax+CLTG, batch 32, input 1024" (what is not as in mini), and
// "ETTh1 96". Throws one sentence if the plan cannot be run.
Grid grid_of(const TsfPlan& plan);

// "440 runs, at most 240,000 steps"
std::string tsf_cost(const Grid& grid);

// Ridge on the same windows, if the plan has it: a cell for each column, with nothing to train, to choose or to draw.
Grid ridge_grid_of(const TsfPlan& plan);

}  // namespace fem
