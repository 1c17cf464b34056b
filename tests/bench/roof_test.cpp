#include "bench/roof.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

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

TEST(Roof, IsPositiveAndFinite) {
  const Roof roof = measure_roof();
  for (const Speed& speed : {roof.all_threads, roof.one_thread})
    for (const double value : {speed.gflops, speed.gbytes_per_s}) {
      EXPECT_GT(value, 0);
      EXPECT_TRUE(std::isfinite(value));
    }
  EXPECT_GE(roof.all_threads.gflops, roof.one_thread.gflops);
  EXPECT_GE(roof.all_threads.gbytes_per_s, roof.one_thread.gbytes_per_s);
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
