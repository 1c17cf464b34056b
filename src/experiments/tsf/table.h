// What the runs of Table 4 found, beside ridge.
#pragma once

#include <string>
#include <vector>

#include "experiments/tsf/plan.h"
#include "train/sweep.h"

namespace fem {

// Fits and measures the ridges that the results do not have yet, and adds them.
void measure_ridge(const TsfPlan& plan, SweepResults& results);

// Test MSE of one table: a line for each model, ridge first, mean over the seeds; a column for each horizon, and their
// mean.
std::string tsf_table(const TsfPlan& plan, const std::vector<SweepRow>& rows, const SweepResults& results);

}  // namespace fem
