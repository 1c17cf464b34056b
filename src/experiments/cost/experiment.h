#pragma once

#include <iosfwd>
#include <vector>

#include "experiments/cost/plan.h"
#include "io/jsonl.h"

namespace fem {

// Measures what out/results.jsonl does not have, a line per table, row and round. In a round the row runs just after
// plain attention, forward without gradients and forward with backward, so that both see the same machine. Returns
// false if a signal ended it; what was measured is kept.
bool run_cost(const CostPlan& plan, std::ostream& out);

// The lines of folder/results.jsonl. Throws one sentence if there are none or one lacks a figure.
std::vector<Json> cost_lines(const std::filesystem::path& folder);

// Per table: times, memory and arithmetic of every row, and the ratios to plain attention beside the published ones.
void print_cost_report(const std::vector<Json>& lines, std::ostream& out);

}  // namespace fem
