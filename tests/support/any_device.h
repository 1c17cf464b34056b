// What tests of the paths for devices without kernels share. They run on the CPU, whose tensors they are given.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/chunks.h"
#include "ops/operator.h"
#include "support/tolerance.h"

namespace fem::testing {

// While alive, torch has no fused attention.
class WithoutFusedAttention {
 public:
  WithoutFusedAttention() : before_(at::globalContext().userEnabledFlashSDP()) {
    at::globalContext().setSDPUseFlash(false);
  }
  ~WithoutFusedAttention() { at::globalContext().setSDPUseFlash(before_); }

 private:
  bool before_;
};

// While alive, scans in chunks work on portions that keep this many numbers: 1 makes every chunk a portion.
class ScopedPortionMemory {
 public:
  explicit ScopedPortionMemory(int64_t numbers) : before_(portion_memory()) { set_portion_memory(numbers); }
  ~ScopedPortionMemory() { set_portion_memory(before_); }

 private:
  int64_t before_;
};

// The operator as a CUDA tensor's call would reach it, on the tensors of the CPU.
template <typename Signature, typename... Arguments>
auto as_on_cuda(const char* name, const Arguments&... arguments) {
  return find_operator<Signature>(name).redispatch(c10::DispatchKeySet(c10::DispatchKey::CUDA), arguments...);
}

template <typename... Tensor>
std::vector<at::Tensor> listed(const std::tuple<Tensor...>& tensors) {
  return std::apply([](const auto&... x) { return std::vector<at::Tensor>{x...}; }, tensors);
}

// close(), and what must be exactly zero is.
inline ::testing::AssertionResult close_or_zero(const at::Tensor& actual, const at::Tensor& expected,
                                                Tolerance tolerance, double magnitude = 0) {
  if (expected.numel() == 0 || expected.ne(0).any().item<bool>()) return close(actual, expected, tolerance, magnitude);
  if (actual.sizes() == expected.sizes() && !actual.ne(0).any().item<bool>()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected zeros, got up to " << actual.abs().max().item<double>();
}

}  // namespace fem::testing
