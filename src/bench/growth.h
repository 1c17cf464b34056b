// How the cost of a read grows with the number of tokens.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "fem/options.h"

namespace fem::bench {

struct Growth {
  std::string read;  // a prior, or "torch sdpa"
  std::vector<int64_t> lengths;
  std::vector<double> forward_ms, training_ms;  // medians; training is forward and backward

  // n of cost ~ T^n: the slope of a straight line through the logarithms.
  double forward_exponent() const;
  double training_exponent() const;
};

struct GrowthSettings {
  std::vector<PriorType> priors;
  int64_t longest = 32768;
  int64_t repeats = 5;
};

// Every prior, and torch's attention beside softmax, D 512, H 4, B 1, at T = 1024, 2048, ... longest. The lengths of a
// read are run in turn, so that a slow moment of the machine does not bend the line.
std::vector<Growth> bench_growth(const GrowthSettings& settings);

void print_growth(const std::vector<Growth>& all, std::ostream& out);
void write_growth_json(const std::vector<Growth>& all, std::ostream& out);

}  // namespace fem::bench
