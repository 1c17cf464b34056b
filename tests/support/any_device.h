// What tests of the paths for devices without kernels share. They run on the CPU, whose tensors they are given.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

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

// The operator as a CUDA tensor's call would reach it, on the tensors of the CPU.
template <typename Op>
typename Op::Outputs as_on_cuda(const typename Op::Inputs& in) {
  const auto op = find_operator<typename Signatures<Op>::Forward>("fem::" + name_of<Op>());
  const auto run = [&](const auto&... x) { return op.redispatch(c10::DispatchKeySet(c10::DispatchKey::CUDA), x...); };
  typename Op::Outputs out;
  take<kFieldCount<typename Op::Outputs>>(out, std::apply(run, in.fields()));
  return out;
}
template <typename Op>
typename Op::Inputs gradient_as_on_cuda(const BackwardOf<Op>& b) {
  const auto op = find_operator<typename Signatures<Op>::Gradient>("fem::" + name_of<Op>() + "_backward");
  const auto run = [&](const auto&... x) {
    return op.redispatch(c10::DispatchKeySet(c10::DispatchKey::CUDA), x..., b.wanted);
  };
  typename Op::Inputs gradients;
  take<Op::kLearned>(gradients,
                     std::apply(run, std::tuple_cat(outputs_passed(b.grads), b.in.fields(), outputs_passed(b.out))));
  return gradients;
}

// What a gradient is computed from, with all of them wanted.
template <typename Op>
BackwardOf<Op> all_gradients(const typename Op::Outputs& grads, const typename Op::Inputs& in,
                             const typename Op::Outputs& out = {}) {
  BackwardOf<Op> b{grads, in, out, {}};
  b.wanted.fill(true);
  return b;
}

// close(), and what must be exactly zero is.
inline ::testing::AssertionResult close_or_zero(const at::Tensor& actual, const at::Tensor& expected,
                                                Tolerance tolerance, double magnitude = 0) {
  if (expected.numel() == 0 || expected.ne(0).any().item<bool>()) return close(actual, expected, tolerance, magnitude);
  if (actual.sizes() == expected.sizes() && !actual.ne(0).any().item<bool>()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected zeros, got up to " << actual.abs().max().item<double>();
}

}  // namespace fem::testing
