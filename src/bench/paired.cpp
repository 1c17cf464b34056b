#include "bench/paired.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "util/interrupt.h"

namespace fem::bench {
namespace {

// The second warm-up run finds the allocator's and BLAS's buffers in place.
constexpr int kWarmUps = 2;

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double milliseconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

PairedTimes time_in_turn(const Work& ours, const Work& opponent, int64_t repeats, const Work& between) {
  for (int i = 0; i < kWarmUps; ++i) {
    ours();
    opponent();
  }
  std::vector<double> a, b;
  while (static_cast<int64_t>(a.size()) < repeats && !(interrupted() && !a.empty())) {
    a.push_back(milliseconds(ours));
    b.push_back(milliseconds(opponent));
    between();
  }
  return {median(a), median(b), static_cast<int64_t>(a.size())};
}

std::vector<double> time_all_in_turn(const std::vector<Work>& works, int64_t repeats, const Work& between) {
  for (const Work& work : works) work();
  std::vector<std::vector<double>> times(works.size());
  for (int64_t r = 0; r < repeats && !(interrupted() && r > 0); ++r)
    for (size_t i = 0; i < works.size(); ++i) {
      times[i].push_back(milliseconds(works[i]));
      between();
    }
  std::vector<double> medians;
  for (const std::vector<double>& t : times) medians.push_back(median(t));
  return medians;
}

}  // namespace fem::bench
