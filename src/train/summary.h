// What several runs say together.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace fem {

struct Summary {
  size_t count = 0;
  double mean = 0;
  std::optional<double> standard_error;  // of the mean; absent for a single value

  std::string text(int digits) const;  // "0.9895 ± 0.0001"
};
Summary summarize(const std::vector<double>& values);

// Of several choices the one whose mean over the same seeds is best, the first of equals. values[choice][seed]; a run
// that failed has none, and its choice is out. Nothing if all are.
std::optional<size_t> best_choice(const std::vector<std::vector<std::optional<double>>>& values, bool larger_is_better);

}  // namespace fem
