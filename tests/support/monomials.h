// The features of the paper's Proposition C.1: exp(q.k) cut off after a degree is an inner product of monomials.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

namespace fem::testing {

// Binomial coefficient.
inline int64_t choose(int64_t n, int64_t k) {
  int64_t result = 1;
  for (int64_t i = 1; i <= k; ++i) result = result * (n - k + i) / i;
  return result;
}

// The smallest N with sum_{n>N} radius^n / n! <= epsilon.
inline int64_t smallest_degree(double radius, double epsilon) {
  const auto tail = [&](int64_t degree) {
    double sum = 0;
    for (int64_t n = degree + 120; n > degree; --n) sum += std::exp(n * std::log(radius) - std::lgamma(n + 1.0));
    return sum;
  };
  int64_t degree = 0;
  while (tail(degree) > epsilon) ++degree;
  return degree;
}

// x^a / sqrt(a!) for all multi-indices |a| <= degree: [..., d] -> [..., choose(degree + d, d)]
inline at::Tensor monomials(const at::Tensor& x, int64_t degree) {
  struct Term {
    at::Tensor feature;
    int64_t degree;
  };
  std::vector<Term> terms{{at::ones_like(x.select(-1, 0)), 0}};
  for (int64_t c = 0; c < x.size(-1); ++c) {
    std::vector<Term> longer;
    for (const Term& term : terms) {
      at::Tensor feature = term.feature;
      for (int64_t n = 0; term.degree + n <= degree; ++n) {
        if (n > 0) feature = feature * x.select(-1, c) / std::sqrt(static_cast<double>(n));
        longer.push_back({feature, term.degree + n});
      }
    }
    terms = longer;
  }
  std::vector<at::Tensor> features;
  for (const Term& term : terms) features.push_back(term.feature);
  return at::stack(features, -1);
}

}  // namespace fem::testing
