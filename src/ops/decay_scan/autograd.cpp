// Keeps log_decay, initial and the output h: u is not needed, and no decay is kept twice.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/decay_scan/decay_scan.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct DecayScanFunction : torch::autograd::Function<DecayScanFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& u, const at::Tensor& log_decay,
                            const OptionalTensor& initial) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor h = call_decay_scan(u, log_decay, initial);
    ctx->save_for_backward({log_decay, initial.value_or(at::Tensor()), h});
    return h;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [du, dlog_decay, dinitial] = call_decay_scan_backward(grad[0], saved[0], if_defined(saved[1]), saved[2]);
    return {du, dlog_decay, saved[1].defined() ? dinitial : at::Tensor()};
  }
};

at::Tensor scan_autograd(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  if (under_transform()) return decay_scan_by_definition(u, log_decay, initial);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_decay_scan(u, log_decay, initial);
  }
  return DecayScanFunction::apply(u, log_decay, initial);
}

// Second derivatives: the gradient is a scan again, which autograd differentiates by itself.
Tensors3 gradient_autograd(const at::Tensor& grad, const at::Tensor& log_decay, const OptionalTensor& initial,
                           const at::Tensor& h) {
  if (at::GradMode::is_enabled()) return decay_scan_gradient(call_decay_scan, grad, log_decay, initial, h);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_decay_scan_backward(grad, log_decay, initial, h);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("decay_scan", scan_autograd);
  m.impl("decay_scan_backward", gradient_autograd);
}

}  // namespace fem
