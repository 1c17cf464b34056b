#include "cpu/partition.h"

#include <numeric>

namespace fem::cpu {

std::vector<int64_t> equal_cost_borders(const std::vector<double>& costs, int64_t repeats, int64_t parts) {
  const auto size = static_cast<int64_t>(costs.size());
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0) * static_cast<double>(repeats);
  std::vector<int64_t> borders{0};
  double done = 0;
  for (int64_t item = 0; item < repeats * size; ++item) {
    // An item goes to the part in which its middle lies.
    const double middle = done + costs[item % size] / 2;
    while (static_cast<int64_t>(borders.size()) < parts &&
           middle >= total * static_cast<double>(borders.size()) / static_cast<double>(parts))
      borders.push_back(item);
    done += costs[item % size];
  }
  borders.resize(parts + 1, repeats * size);
  return borders;
}

}  // namespace fem::cpu
