#include "bench/roof.h"

#include <ATen/ATen.h>
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

// One thread's loops by another clock.
double arithmetic_of_one_thread() {
  const int64_t rounds = 1'000'000;
  float sum = 0;
  const double flops = peak_kernels::multiply_adds()(1, 0.5f, &sum) * static_cast<double>(rounds);
  return rate(flops, [&] { peak_kernels::multiply_adds()(rounds, 0.5f, &sum); });
}
double reading_of_one_thread() {
  const int64_t bytes = 8 * std::max<int64_t>(this_machine().largest_cache(), 32 << 20);
  const at::Tensor data = at::ones({bytes / 4 / peak_kernels::kBlock, peak_kernels::kBlock}, at::kFloat);
  return rate(static_cast<double>(data.nbytes()),
              [&] { peak_kernels::sum_of()(data.const_data_ptr<float>(), data.size(0)); });
}

// Others use the machine as well: what is best over several rounds counts.
TEST(Roof, IsWhatTheLoopsReach) {
  const double threads = at::get_num_threads();
  const auto alike = [](double a, double b) { return a < 1.25 * b && b < 1.25 * a; };
  Roof roof;
  Speed own;
  bool arithmetic = false, memory = false, together = false;
  for (int round = 0; round < 20 && !(arithmetic && memory && together); ++round) {
    roof = higher(roof, measure_roof());
    own.gflops = std::max(own.gflops, arithmetic_of_one_thread());
    own.gbytes_per_s = std::max(own.gbytes_per_s, reading_of_one_thread());
    arithmetic = alike(roof.one_thread.gflops, own.gflops);
    memory = alike(roof.one_thread.gbytes_per_s, own.gbytes_per_s);
    const double gain = roof.all_threads.gflops / roof.one_thread.gflops;
    together = gain < 1.25 * threads && (threads == 1 || gain > 1.25);
  }
  EXPECT_TRUE(arithmetic) << roof.one_thread.gflops << " GFLOPS, here " << own.gflops;
  EXPECT_TRUE(memory) << roof.one_thread.gbytes_per_s << " GB/s, here " << own.gbytes_per_s;
  EXPECT_TRUE(together) << roof.all_threads.gflops << " GFLOPS of " << threads << " threads, " << roof.one_thread.gflops
                        << " of one";
  EXPECT_LT(roof.all_threads.gbytes_per_s, 1.25 * threads * roof.one_thread.gbytes_per_s);
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
