// Fixtures for tests of kernels: every instruction set, a chosen number of threads, poisoned memory.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "cpu/isa.h"

namespace fem::testing {

// While alive, kernels of the given instruction set run.
class ScopedIsa {
 public:
  explicit ScopedIsa(cpu::Isa isa) : before_(cpu::active_isa()) { cpu::force_isa(isa); }
  ~ScopedIsa() { cpu::force_isa(before_); }

 private:
  cpu::Isa before_;
};

// While alive, at::empty returns NaN: whatever a kernel forgets to write shows.
class PoisonedMemory {
 public:
  PoisonedMemory() { set(true); }
  ~PoisonedMemory() { set(false); }

 private:
  static void set(bool on) {
    at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(on);
  }
};

class ScopedThreads {
 public:
  explicit ScopedThreads(int threads) : before_(at::get_num_threads()) { at::set_num_threads(threads); }
  ~ScopedThreads() { at::set_num_threads(before_); }

 private:
  int before_;
};

// Base of kernel tests: runs once per instruction set the machine has, on poisoned memory, with a fixed seed.
class KernelTest : public ::testing::TestWithParam<cpu::Isa> {
 protected:
  KernelTest() : isa_(GetParam()) { at::manual_seed(7); }

 private:
  ScopedIsa isa_;
  PoisonedMemory poison_;
};

inline std::string isa_label(const ::testing::TestParamInfo<cpu::Isa>& info) { return cpu::name_of(info.param); }

}  // namespace fem::testing

#define FEM_ON_EVERY_ISA(Fixture) \
  INSTANTIATE_TEST_SUITE_P(Isa, Fixture, ::testing::ValuesIn(::fem::cpu::available_isas()), ::fem::testing::isa_label)
