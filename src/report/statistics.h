// What is said of orders and differences: rank correlations, and intervals of a mean.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace fem {

// From 1; equal values share the mean of their ranks.
std::vector<double> ranks(const std::vector<double>& values);

// How far two lists have one order, from -1 to 1; nothing where one of them is the same throughout.
std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b);  // ties share their ranks
std::optional<double> kendall(const std::vector<double>& a, const std::vector<double>& b);   // tau-b, which allows ties

// The value that Student's t exceeds in absolute value with probability 1 - confidence.
double student_quantile(size_t degrees_of_freedom, double confidence);

// A mean with its 95 % interval by Student's t; a single value has none.
struct Interval {
  double mean = 0;
  size_t count = 0;
  std::optional<double> half_width;

  // Whether the interval leaves out 0.
  bool is_apart_from_zero() const { return half_width && (mean > *half_width || mean < -*half_width); }
};
Interval interval_of(const std::vector<double>& values);

}  // namespace fem
