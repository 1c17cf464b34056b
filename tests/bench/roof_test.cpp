#include "bench/roof.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "bench/cpu/peak.h"
#include "bench/machine.h"

namespace fem::bench {
namespace {

class OnEveryIsa : public testing::TestWithParam<cpu::Isa> {
 protected:
  void SetUp() override { cpu::force_isa(GetParam()); }
  void TearDown() override { cpu::force_isa(usual_); }

  const cpu::Isa usual_ = cpu::active_isa();
};

TEST_P(OnEveryIsa, MultiplyAddsAreAsManyAsTheySay) {
  float sum = 0;
  const double flops = peak_kernels::multiply_adds()(100, 0.5f, &sum);  // every x is 1 by then
  EXPECT_EQ(flops, 2.0 * 100 * sum);
}

TEST_P(OnEveryIsa, SumReadsEveryElement) {
  const at::Tensor data = at::ones({2 * peak_kernels::kBlock}, at::kFloat);
  EXPECT_EQ(peak_kernels::sum_of()(data.const_data_ptr<float>(), 2), 2 * peak_kernels::kBlock);
}

INSTANTIATE_TEST_SUITE_P(Roof, OnEveryIsa, testing::ValuesIn(cpu::available_isas()),
                         [](const auto& info) { return std::string(cpu::name_of(info.param)); });

// The best of a few runs of units, in 10^9 a second.
template <typename Run>
double rate(double units, const Run& run) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int i = 0; i < 12; ++i) {
    const auto start = Clock::now();
    run();
    best = std::max(best, units / std::chrono::duration<double>(Clock::now() - start).count() / 1e9);
  }
  return best;
}

// The same loops by another clock.
double arithmetic_of(int64_t threads) {
  const int64_t rounds = 1'000'000;
  const auto run = [&](int64_t begin, int64_t end) {
    float sum = 0;
    for (int64_t i = begin; i < end; ++i) peak_kernels::multiply_adds()(rounds, 0.5f, &sum);
  };
  float sum = 0;
  const double flops = peak_kernels::multiply_adds()(1, 0.5f, &sum) * static_cast<double>(rounds * threads);
  return rate(flops, [&] { at::parallel_for(0, threads, 1, run); });
}
double reading_of_one_thread() {
  const int64_t bytes = 8 * std::max<int64_t>(this_machine().largest_cache(), 32 << 20);
  const at::Tensor data = at::ones({bytes / 4 / peak_kernels::kBlock, peak_kernels::kBlock}, at::kFloat);
  return rate(static_cast<double>(data.nbytes()),
              [&] { peak_kernels::sum_of()(data.const_data_ptr<float>(), data.size(0)); });
}

// Others use the machine as well: what is best over several rounds counts, and only a factor of two is a mistake.
TEST(Roof, IsWhatTheLoopsReach) {
  const auto alike = [](double a, double b) { return a < 1.6 * b && b < 1.6 * a; };
  Roof roof, own;
  const auto agree = [&] {
    return alike(roof.one_thread.gflops, own.one_thread.gflops) &&
           alike(roof.one_thread.gbytes_per_s, own.one_thread.gbytes_per_s) &&
           alike(roof.all_threads.gflops, own.all_threads.gflops);
  };
  for (int round = 0; round < 20 && !agree(); ++round) {
    roof = higher(roof, measure_roof());
    const double one = arithmetic_of(1), all = std::max(one, arithmetic_of(at::get_num_threads()));
    own = higher(own, {{all, 0}, {one, reading_of_one_thread()}});
  }
  EXPECT_TRUE(agree()) << "one thread: " << roof.one_thread.gflops << " GFLOPS, here " << own.one_thread.gflops << "; "
                       << roof.one_thread.gbytes_per_s << " GB/s, here " << own.one_thread.gbytes_per_s
                       << "; all threads: " << roof.all_threads.gflops << " GFLOPS, here " << own.all_threads.gflops;
  EXPECT_LT(roof.all_threads.gbytes_per_s, 1.6 * at::get_num_threads() * roof.one_thread.gbytes_per_s);
}

TEST(Roof, HigherTakesTheBestOfEach) {
  const Roof roof = higher({{10, 2}, {5, 1}}, {{9, 3}, {6, 1}});
  EXPECT_EQ(roof.all_threads.gflops, 10);
  EXPECT_EQ(roof.all_threads.gbytes_per_s, 3);
  EXPECT_EQ(roof.one_thread.gflops, 6);
}

TEST(Roof, WhatTakesLongerBinds) {
  const Speed roof{.gflops = 100, .gbytes_per_s = 10};
  EXPECT_TRUE(memory_binds({.flops = 9, .bytes = 1}, roof));
  EXPECT_FALSE(memory_binds({.flops = 11, .bytes = 1}, roof));
  EXPECT_FALSE(memory_binds({.flops = 11}, roof));
}

TEST(Machine, IsNamed) {
  const Machine machine = this_machine();
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_EQ(machine.isa, cpu::name_of(cpu::active_isa()));
  EXPECT_GE(machine.cores, 1);
  EXPECT_GE(machine.threads, 1);
  for (const auto& [name, bytes] : machine.caches) {
    EXPECT_EQ(name.front(), 'L');
    EXPECT_LE(bytes, machine.largest_cache());
  }
}

}  // namespace
}  // namespace fem::bench
