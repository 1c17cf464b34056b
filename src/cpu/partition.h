// Static division of work that is not uniform: deterministic for a given number of threads.
#pragma once

#include <cstdint>
#include <vector>

namespace fem::cpu {

// Cuts the items 0 ... repeats * costs.size() - 1, item i costing costs[i % costs.size()], into runs of nearly equal
// cost. Returns parts + 1 borders.
std::vector<int64_t> equal_cost_borders(const std::vector<double>& costs, int64_t repeats, int64_t parts);

}  // namespace fem::cpu
