// A softmax read and its gradients, by kernel or by definition.
#pragma once

#include <torch/csrc/autograd/autograd.h>

#include "support/softmax_cases.h"
#include "support/tolerance.h"

namespace fem::testing {

struct SoftmaxResult {
  fem::SoftmaxRead read;
  std::vector<at::Tensor> gradients;  // query, key, value, then beta and bias if they are there
  std::vector<std::string> names;     // theirs
};

// The read and the gradients of <g1, mean> + <g2, free energy>.
template <typename ReadFunction>
SoftmaxResult run(ReadFunction&& function, const SoftmaxInputs& in, const at::Tensor& g1, const at::Tensor& g2) {
  SoftmaxResult result{function(in.query, in.key, in.value, in.beta, in.options), {}, {"query", "key", "value"}};
  std::vector<at::Tensor> outputs{result.read.mean}, seeds{g1.to(in.query.scalar_type())},
      wrt{in.query, in.key, in.value};
  if (in.beta) {
    outputs.push_back(result.read.free_energy);
    seeds.push_back(g2.to(in.query.scalar_type()));
    wrt.push_back(*in.beta);
    result.names.push_back("beta");
  }
  if (in.options.bias && in.options.bias->requires_grad()) {
    wrt.push_back(*in.options.bias);
    result.names.push_back("bias");
  }
  result.gradients = torch::autograd::grad(outputs, wrt, seeds);
  return result;
}

// A result of kernels in bfloat16 is as good as the definition's in bfloat16, plain, measured by that in float64.
inline void expect_as_exact(const SoftmaxResult& actual, const SoftmaxResult& plain, const SoftmaxResult& exact,
                            const SoftmaxInputs& in, const at::Tensor& g2) {
  EXPECT_TRUE(about_as_exact(actual.read.mean, plain.read.mean, exact.read.mean, kTimesPlainBfloat16)) << "mean";
  EXPECT_TRUE(close(actual.read.log_normalizer, exact.read.log_normalizer, kFloat32)) << "log-normaliser";
  if (in.beta) {
    EXPECT_TRUE(
        about_as_exact(actual.read.free_energy, plain.read.free_energy, exact.read.free_energy, kTimesPlainBfloat16))
        << "free energy";
  }
  for (size_t i = 0; i < actual.gradients.size(); ++i) {
    SCOPED_TRACE(actual.names[i]);
    if (i < 2 && in.beta && !exact.gradients[i].any().item<bool>()) {
      // Every query sees one key: p (dp - correction) of a channel is the difference of two numbers dF v or dF / beta.
      const at::Tensor terms = (g2 * at::maximum(in.value.abs(), 1 / *in.beta)).abs().sum(-1);
      const double width = static_cast<double>(in.query.size(3));
      const double magnitude = (terms.max() * (i == 0 ? in.key : in.query).abs().max()).item<double>();
      EXPECT_TRUE(vanishes(actual.gradients[i], kBfloat16, magnitude / std::sqrt(width)));
    } else {
      EXPECT_TRUE(about_as_exact(actual.gradients[i], plain.gradients[i], exact.gradients[i], kTimesPlainBfloat16));
    }
  }
}

// A result of kernels in dtype against the definition in float64, both with the seeds g1 and g2 of run.
// one_key: no query sees more, so that its score has no influence.
inline void expect_close(const SoftmaxResult& actual, const SoftmaxResult& expected, at::ScalarType dtype,
                         const std::optional<at::Tensor>& beta, const at::Tensor& g2, bool one_key = false) {
  const Tolerance forward = forward_tolerance(dtype), backward = gradient_tolerance(dtype);
  EXPECT_TRUE(close(actual.read.mean, expected.read.mean, forward));
  EXPECT_TRUE(
      close(actual.read.log_normalizer, expected.read.log_normalizer, dtype == at::kDouble ? kFloat64 : kFloat32));
  if (beta) {
    EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, forward));
  }
  ASSERT_EQ(actual.names, expected.names);
  for (size_t i = 0; i < actual.gradients.size(); ++i) {
    const std::string& name = actual.names[i];
    SCOPED_TRACE(name);
    if (one_key && (i < 2 || name == "bias")) {
      // That of bias is a sum over the channels of dv times v.
      const double channels = name == "bias" ? static_cast<double>(actual.gradients[2].size(3)) : 1;
      const double of_terms = channels * expected.gradients[2].abs().max().item<double>();
      EXPECT_TRUE(vanishes(expected.gradients[i], kFloat64, of_terms));
      EXPECT_TRUE(vanishes(actual.gradients[i], backward, of_terms));
      continue;
    }
    // That of beta is a difference of two sums of this size.
    const double magnitude =
        name != "beta" ? 0 : (g2 * expected.read.free_energy / *beta).abs().sum({0, 1}).max().item<double>();
    if (one_key && name == "beta")  // F is the value then, whatever beta
      EXPECT_TRUE(vanishes(expected.gradients[i], kFloat64, magnitude) &&
                  vanishes(actual.gradients[i], backward, magnitude));
    else
      EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], backward, magnitude));
  }
}

}  // namespace fem::testing
