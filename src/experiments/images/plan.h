// The paper's Table 3: mixers in a DeiT-style encoder, as a grid of runs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/mixer_rows.h"
#include "train/sweep.h"

namespace fem {

inline constexpr const char* kFashionFolder = "/usr/share/datasets/fashion-mnist";  // Debian's dataset-fashion-mnist

struct ImagesPlan {
  std::string preset;
  std::vector<MixerRow> mixers;
  std::vector<std::string> models;  // columns: fashion-mnist, or deit-tiny and deit-small
  std::filesystem::path folder;     // of the pictures
  std::vector<int64_t> seeds;       // that are reported; of the initial parameters, of the order and of the variations
  int64_t choosing_seed = 0;        // by which each mixer's learning rate is chosen
  std::vector<double> learning_rates;
};

ImagesPlan images_preset(const std::string& name);

// Axes mixer and model. Throws one sentence if the plan cannot be run.
Grid grid_of(const ImagesPlan& plan);

// What a grid costs; tokens are patches and class tokens.
std::string images_cost(const Grid& grid);

}  // namespace fem
