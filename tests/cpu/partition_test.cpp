#include "cpu/partition.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

namespace fem::cpu {
namespace {

RC_GTEST_PROP(Partition, CoversEveryItemOnceInRunsOfNearlyEqualCost, ()) {
  const auto sizes = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 100)));
  const std::vector<double> costs(sizes.begin(), sizes.end());
  const auto repeats = *rc::gen::inRange<int64_t>(1, 5);
  const auto parts = *rc::gen::inRange<int64_t>(1, 9);
  const auto borders = equal_cost_borders(costs, repeats, parts);
  RC_ASSERT(static_cast<int64_t>(borders.size()) == parts + 1);
  RC_ASSERT(borders.front() == 0 && borders.back() == repeats * static_cast<int64_t>(costs.size()));
  RC_ASSERT(std::is_sorted(borders.begin(), borders.end()));
  const double share =
      std::accumulate(costs.begin(), costs.end(), 0.0) * static_cast<double>(repeats) / static_cast<double>(parts);
  const double largest = *std::max_element(costs.begin(), costs.end());
  for (int64_t p = 0; p < parts; ++p) {
    double cost = 0;
    for (int64_t i = borders[p]; i < borders[p + 1]; ++i) cost += costs[i % costs.size()];
    RC_ASSERT(cost <= share + largest + 1e-9);
  }
}

TEST(Partition, OfNothingIsEmptyRuns) {
  EXPECT_EQ(equal_cost_borders({}, 3, 2), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(equal_cost_borders({1, 1}, 0, 2), (std::vector<int64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace fem::cpu
