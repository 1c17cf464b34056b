// Which rule and which mixer lets a small model learn faster? Grids of runs, on text and on a synthetic task.
#pragma once

#include <string>
#include <vector>

#include "experiments/energy/variants.h"
#include "experiments/ladder/plan.h"
#include "train/sweep.h"

namespace fem {

struct EnergyPlan {
  std::string preset;
  std::vector<EnergyVariant> variants = energy_variants();
  std::vector<int64_t> seeds{1, 2, 3};  // that are reported
  int64_t choosing_seed = 0;            // by which each variant's learning rate is chosen
  std::vector<double> learning_rates{1e-3, 3e-3, 1e-2};
};

EnergyPlan energy_preset(const std::string& name);

// Language models, axes variant and text.
Grid language_grid(const EnergyPlan& plan, const std::vector<LadderText>& texts);

// Longest increasing subsequences, axes variant and task. A seed is that of the examples as well.
Grid lis_grid(const EnergyPlan& plan);

// What one of these grids costs.
std::string energy_cost(const Grid& grid);

}  // namespace fem
