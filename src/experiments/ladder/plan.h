// Which letter makes a language model better? The paper's ladder on text.
#pragma once

#include <string>
#include <vector>

#include "experiments/mixer_rows.h"
#include "train/sweep.h"

namespace fem {

struct LadderText {
  std::string name;
  std::string train, validation;  // files; no validation: the last tenth of train
};

// "tinyshakespeare=input.txt" or "wikitext2=train.txt,valid.txt"
LadderText ladder_text(const std::string& assignment);

// What a text changes of a recipe: the names of its files, and where they lie.
nlohmann::json changes_of(const LadderText& text);
nlohmann::json places_of(const LadderText& text);

// Throws a sentence if a file is not there.
void expect_files(const LadderText& text);

struct LadderPlan {
  std::string recipe = "500k-attention";
  std::vector<MixerRow> mixers;
  std::vector<LadderText> texts;
  std::vector<int64_t> seeds{1, 2, 3};
  int64_t choosing_seed = 0;
  std::vector<double> learning_rates{1e-3, 3e-3, 1e-2};
  int64_t steps = 400;
};

// Axes mixer and text. The first text chooses a mixer's learning rate for all.
Grid grid_of(const LadderPlan& plan);

// A line a mixer, its loss on every text a column: mean ± standard error, where all seeds have ended.
std::string ladder_table(const Grid& grid, const std::vector<SweepRow>& rows);

}  // namespace fem
