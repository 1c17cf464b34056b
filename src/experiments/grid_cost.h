#pragma once

#include <functional>
#include <string>

#include "train/sweep.h"

namespace fem {

// What a grid costs, to be said before it runs: "1,044 runs, 920,000 steps, 1,100 million tokens, 0.7 PFLOP".
// tokens_of_a_row: by a run's recipe.
std::string cost_of(const Grid& grid, const std::function<int64_t(const nlohmann::json& recipe)>& tokens_of_a_row);

}  // namespace fem
