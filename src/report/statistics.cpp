#include "report/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "train/summary.h"
#include "util/check.h"

namespace fem {
namespace {

// The probability that |t| stays below `t`: the finite sums for whole degrees of freedom (Abramowitz and Stegun,
// 26.7.3 and 26.7.4).
double student_probability(double t, size_t degrees_of_freedom) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(degrees_of_freedom)));
  const double sine = std::sin(angle), square = std::cos(angle) * std::cos(angle);
  const bool odd = degrees_of_freedom % 2 == 1;
  if (degrees_of_freedom == 1) return 2 * angle / std::numbers::pi;
  double term = odd ? std::cos(angle) : 1, sum = term;
  for (size_t i = odd ? 3 : 2; i < degrees_of_freedom; i += 2) {
    term *= square * static_cast<double>(i - 1) / static_cast<double>(i);
    sum += term;
  }
  return odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
}

}  // namespace

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = (static_cast<double>(begin + end) + 1) / 2;
  }
  return ranks;
}

std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b) {
  FEM_CHECK(a.size() == b.size(), "spearman: expected lists of one length, got ", a.size(), " and ", b.size());
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double middle = (static_cast<double>(a.size()) + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - middle) * (y[i] - middle);
    xx += (x[i] - middle) * (x[i] - middle);
    yy += (y[i] - middle) * (y[i] - middle);
  }
  return xx > 0 && yy > 0 ? std::optional(xy / std::sqrt(xx * yy)) : std::nullopt;
}

std::optional<double> kendall(const std::vector<double>& a, const std::vector<double>& b) {
  FEM_CHECK(a.size() == b.size(), "kendall: expected lists of one length, got ", a.size(), " and ", b.size());
  double concordant = 0, in_a = 0, in_b = 0;  // pairs; the last two: that are no ties
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const int x = (a[i] > a[j]) - (a[i] < a[j]), y = (b[i] > b[j]) - (b[i] < b[j]);
      concordant += x * y;
      in_a += x != 0;
      in_b += y != 0;
    }
  }
  return in_a > 0 && in_b > 0 ? std::optional(concordant / std::sqrt(in_a * in_b)) : std::nullopt;
}

double student_quantile(size_t degrees_of_freedom, double confidence) {
  FEM_CHECK(degrees_of_freedom >= 1 && confidence > 0 && confidence < 1,
            "student_quantile: expected degrees of freedom from 1 and a confidence between 0 and 1, got ",
            degrees_of_freedom, " and ", confidence);
  double low = 0, high = 1;
  while (student_probability(high, degrees_of_freedom) < confidence) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (student_probability(middle, degrees_of_freedom) < confidence ? low : high) = middle;
  }
  return high;
}

Interval interval_of(const std::vector<double>& values) {
  constexpr double kConfidence = 0.95;
  const Summary summary = summarize(values);
  Interval interval{.mean = summary.mean, .count = summary.count};
  if (summary.standard_error)
    interval.half_width = student_quantile(summary.count - 1, kConfidence) * *summary.standard_error;
  return interval;
}

}  // namespace fem
