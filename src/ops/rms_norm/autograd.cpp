// Keeps x and the scale: the root is cheaper to compute again than to keep.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/rms_norm/rms_norm.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& scale, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({x, scale});
    ctx->saved_data["eps"] = eps;
    return call_rms_norm(x, scale, eps);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [dx, dscale] = call_rms_norm_backward(grad[0], saved[0], saved[1], ctx->saved_data["eps"].toDouble());
    return {dx, dscale, at::Tensor()};
  }
};

at::Tensor norm_autograd(const at::Tensor& x, const at::Tensor& scale, double eps) {
  if (under_transform()) return rms_norm_by_definition(x, scale, eps);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_rms_norm(x, scale, eps);
  }
  return RmsNormFunction::apply(x, scale, eps);
}

Tensors2 gradient_autograd(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& scale, double eps) {
  if (at::GradMode::is_enabled()) return rms_norm_gradient(grad, x, scale, eps);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_rms_norm_backward(grad, x, scale, eps);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("rms_norm", norm_autograd);
  m.impl("rms_norm_backward", gradient_autograd);
}

}  // namespace fem
