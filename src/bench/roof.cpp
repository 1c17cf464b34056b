#include "bench/roof.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "bench/cpu/peak.h"
#include "bench/machine.h"
#include "bench/paired.h"

namespace fem::bench {
namespace {

using peak_kernels::kBlock;

constexpr int kRuns = 12;               // the best counts: others use the machine as well
constexpr int64_t kRounds = 1'000'000;  // two milliseconds or so
constexpr float kFactor = 0.5f;         // x -> 1: neither grows nor becomes denormal
constexpr int64_t kLeastBytes = 256 << 20, kMostBytes = 1 << 30;

// 10^9 units a second; run() returns how many units it did.
template <typename Run>
double best_rate(const Run& run) {
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    double units = 0;
    const double ms = milliseconds([&] { units = run(); });
    best = std::max(best, units / ms / 1e6);
  }
  return best;
}

double arithmetic(int64_t threads) {
  std::vector<double> flops(threads);
  const auto work = [&, run = peak_kernels::multiply_adds()](int64_t begin, int64_t end) {
    float sum = 0;
    for (int64_t i = begin; i < end; ++i) flops[i] = run(kRounds, kFactor, &sum);
  };
  return best_rate([&] {
    at::parallel_for(0, threads, 1, work);
    double all = 0;
    for (const double part : flops) all += part;
    return all;
  });
}

double reading(const at::Tensor& data, bool parallel) {
  const int64_t blocks = data.numel() / kBlock;
  const float* const begin_of_data = data.const_data_ptr<float>();
  const auto work = [=, run = peak_kernels::sum_of()](int64_t begin, int64_t end) {
    run(begin_of_data + begin * kBlock, end - begin);
  };
  return best_rate([&] {
    at::parallel_for(0, blocks, parallel ? 1 : blocks, work);
    return static_cast<double>(data.nbytes());
  });
}

Speed higher(const Speed& a, const Speed& b) {
  return {std::max(a.gflops, b.gflops), std::max(a.gbytes_per_s, b.gbytes_per_s)};
}

}  // namespace

Roof measure_roof() {
  const int64_t bytes = std::clamp(8 * this_machine().largest_cache(), kLeastBytes, kMostBytes);
  const int64_t floats = bytes / static_cast<int64_t>(sizeof(float)) / kBlock * kBlock;
  const at::Tensor data = at::ones({floats}, at::kFloat);  // written, so that every page is memory of its own
  const Speed one{arithmetic(1), reading(data, false)};
  const Speed all{arithmetic(at::get_num_threads()), reading(data, true)};
  // On a busy machine all threads wait for the slowest; together they could still do what one did.
  return {higher(all, one), one};
}

Roof higher(const Roof& a, const Roof& b) {
  return {higher(a.all_threads, b.all_threads), higher(a.one_thread, b.one_thread)};
}

bool memory_binds(const Cost& cost, const Speed& roof) {
  return static_cast<double>(cost.bytes) / roof.gbytes_per_s > static_cast<double>(cost.flops) / roof.gflops;
}

}  // namespace fem::bench
