// Learned decays: how fast a head or a channel forgets.
#pragma once

#include <cmath>
#include <vector>

namespace fem {

// count values from first to last in equal ratios.
inline std::vector<double> geometric(double first, double last, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(first * std::pow(last / first, count > 1 ? static_cast<double>(i) / (count - 1) : 0.5));
  return values;
}

// x with softplus(x) = y > 0
inline double inverse_softplus(double y) { return y + std::log(-std::expm1(-y)); }

// Biases with which exp(-softplus(bias)) halves in 8 ... 1024 tokens, from syllables to paragraphs at the start; zeros
// unless spread.
inline std::vector<double> decay_biases(int64_t count, bool spread) {
  if (!spread) return std::vector<double>(count, 0.0);
  std::vector<double> biases;
  for (const double tokens : geometric(8, 1024, count)) biases.push_back(inverse_softplus(std::log(2.0) / tokens));
  return biases;
}

}  // namespace fem
