#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace fem::bench {

struct PairedTimes {
  double ours_ms = 0, opponent_ms = 0;  // medians
  int64_t repeats = 0;                  // fewer than asked for if a signal came
};

using Work = std::function<void()>;

double milliseconds(const Work& work);  // of one run
double median(std::vector<double> values);

// Warms both up, then runs them in turn, so that both see the same machine. between() is called after every pair.
PairedTimes time_in_turn(const Work& ours, const Work& opponent, int64_t repeats, const Work& between = [] {});

// Medians of several pieces of work, run in turn after one warm-up each; fewer repeats if a signal came.
std::vector<double> time_all_in_turn(const std::vector<Work>& works, int64_t repeats, const Work& between);

}  // namespace fem::bench
