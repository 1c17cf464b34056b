#include "train/summary.h"

#include <algorithm>
#include <cmath>

#include "util/table.h"

namespace fem {

std::string Summary::text(int digits) const {
  return fixed(mean, digits) + (standard_error ? " ± " + fixed(*standard_error, digits) : "");
}

Summary summarize(const std::vector<double>& values) {
  Summary s{.count = values.size()};
  const auto count = static_cast<double>(values.size());
  for (const double v : values) s.mean += v / count;
  if (values.size() > 1) {
    double squares = 0;
    for (const double v : values) squares += (v - s.mean) * (v - s.mean);
    s.standard_error = std::sqrt(squares / (count - 1) / count);
  }
  return s;
}

std::optional<size_t> best_choice(const std::vector<std::vector<std::optional<double>>>& values,
                                  bool larger_is_better) {
  std::optional<size_t> best;
  double best_mean = 0;
  for (size_t choice = 0; choice < values.size(); ++choice) {
    std::vector<double> own;
    for (const auto& value : values[choice])
      if (value && std::isfinite(*value)) own.push_back(*value);
    if (own.empty() || own.size() < values[choice].size()) continue;
    const double mean = summarize(own).mean;
    if (best && (larger_is_better ? mean <= best_mean : mean >= best_mean)) continue;
    best = choice;
    best_mean = mean;
  }
  return best;
}

}  // namespace fem
