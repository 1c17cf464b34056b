#include "support/gradient_check.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/tolerance.h"

namespace fem::testing {
namespace {

constexpr double kStep = 1e-6;
constexpr double kRoundings = 8 * 2.2e-16;  // of a sum, relative to its terms

std::vector<at::Tensor> leaves(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& x : inputs) out.push_back(x.detach().clone().requires_grad_());
  return out;
}

// Every output times a weight, the same in every call.
std::vector<at::Tensor> weighted(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> terms;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto weights = at::sin(at::arange(outputs[i].numel(), at::kDouble) * 1.7 + static_cast<double>(i + 1));
    terms.push_back(outputs[i].reshape(-1) * weights);
  }
  return terms;
}
at::Tensor projection(const std::vector<at::Tensor>& outputs) { return at::cat(weighted(outputs)).sum(); }

// The gradient whose allowed error is what rounding does to the difference of two projections.
double blurred(const std::vector<at::Tensor>& outputs) {
  const double terms = at::cat(weighted(outputs)).abs().sum().item<double>();
  return kRoundings * terms / kStep / kFiniteDifference.bound;
}

std::vector<at::Tensor> gradients(const Function& function, const std::vector<at::Tensor>& at, bool create_graph) {
  return torch::autograd::grad({projection(function(at))}, at, {}, /*retain_graph=*/create_graph, create_graph,
                               /*allow_unused=*/false);
}

}  // namespace

::testing::AssertionResult gradients_match(const Function& function, const std::vector<at::Tensor>& inputs,
                                           bool second_order) {
  const std::vector<at::Tensor> point = leaves(inputs);
  const std::vector<at::Tensor> analytic = gradients(function, point, false);
  const double magnitude = blurred(function(point));
  for (size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor numeric = at::zeros_like(inputs[i]).reshape(-1);
    for (int64_t k = 0; k < numeric.numel(); ++k) {
      const auto value_at = [&](double shift) {
        at::NoGradGuard no_grad;
        std::vector<at::Tensor> moved = inputs;
        moved[i] = inputs[i].clone();
        moved[i].view(-1)[k] += shift;
        return projection(function(moved)).item<double>();
      };
      numeric[k] = (value_at(kStep) - value_at(-kStep)) / (2 * kStep);
    }
    const auto result = close(analytic[i], numeric.view_as(inputs[i]), kFiniteDifference, magnitude);
    if (!result) return ::testing::AssertionFailure() << "gradient of input " << i << ": " << result.message();
  }
  if (!second_order) return ::testing::AssertionSuccess();
  return gradients_match(
      [&](const std::vector<at::Tensor>& at) {
        if (at::GradMode::is_enabled()) return gradients(function, at, true);
        at::AutoGradMode with_grad(true);
        return gradients(function, leaves(at), false);
      },
      inputs, false);
}

}  // namespace fem::testing
