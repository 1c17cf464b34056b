// Keeps gate and up only: silu(gate) is cheaper to compute again than to read.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/swiglu/swiglu.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({gate, up});
    return call_swiglu(gate, up);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [dgate, dup] = call_swiglu_backward(grad[0], saved[0], saved[1]);
    return {dgate, dup};
  }
};

at::Tensor swiglu_autograd(const at::Tensor& gate, const at::Tensor& up) {
  if (under_transform()) return swiglu_by_definition(gate, up);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_swiglu(gate, up);
  }
  return SwigluFunction::apply(gate, up);
}

Tensors2 gradient_autograd(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  if (at::GradMode::is_enabled()) return swiglu_gradient(grad, gate, up);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_swiglu_backward(grad, gate, up);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("swiglu", swiglu_autograd);
  m.impl("swiglu_backward", gradient_autograd);
}

}  // namespace fem
