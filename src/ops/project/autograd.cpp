// Keeps x (or what it is made from) and the weights.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/modulate/again.h"
#include "ops/project/project.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ProjectFunction : torch::autograd::Function<ProjectFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList weights,
                               at::TensorList biases) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    KeptInputs kept;
    kept.add(x);
    kept.save(ctx, weights.vec());
    ctx->saved_data["biased"] = !biases.empty();
    return call_project(x, weights, biases);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const SavedInputs saved(ctx);
    const auto [dx, dweights, dbiases] = call_project_backward(
        grads, saved.input(0), saved.others(), ctx->needs_input_grad(0), ctx->saved_data["biased"].toBool());
    variable_list gradients{ctx->needs_input_grad(0) ? dx : at::Tensor()};
    gradients.insert(gradients.end(), dweights.begin(), dweights.end());
    gradients.insert(gradients.end(), dbiases.begin(), dbiases.end());
    return gradients;
  }
};

TensorVector project_autograd(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  if (under_transform()) return project_by_definition(x, weights, biases);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_project(x, weights, biases);
  }
  return ProjectFunction::apply(x, weights, biases);
}

ProjectGradients gradient_autograd(at::TensorList grads, const at::Tensor& x, at::TensorList weights, bool input,
                                   bool biased) {
  if (at::GradMode::is_enabled()) return project_gradient(grads, x, weights, input, biased);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_project_backward(grads, x, weights, input, biased);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("project", project_autograd);
  m.impl("project_backward", gradient_autograd);
}

}  // namespace fem
