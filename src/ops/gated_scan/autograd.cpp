// Keeps both logits, the norm and h: u is not needed, and the units are formed again.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/gated_scan/gated_scan.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GatedScanFunction : torch::autograd::Function<GatedScanFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& u, const at::Tensor& decay_logit,
                               const at::Tensor& gate_logit, const at::Tensor& norm_weight,
                               const OptionalTensor& norm_bias, const OptionalTensor& initial,
                               const OptionalTensor& absent, const OptionalTensor& restart, bool reverse, bool silu) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [units, h] =
        call_gated_scan(u, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart, reverse, silu);
    const auto kept = [](const OptionalTensor& x) { return x.value_or(at::Tensor()); };
    ctx->save_for_backward(
        {decay_logit, gate_logit, norm_weight, kept(norm_bias), kept(initial), kept(absent), kept(restart), h});
    ctx->saved_data["reverse"] = reverse;
    ctx->saved_data["silu"] = silu;
    ctx->set_materialize_grads(false);  // of h nobody asks, as a rule
    return {units, h};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &norm_bias = saved[3], &initial = saved[4], &h = saved[7];
    const auto [du, ddecay, dgate, dweight, dbias, dinitial] = call_gated_scan_backward(
        grad[0].defined() ? grad[0] : at::zeros_like(saved[1]), if_defined(grad[1]), saved[0], saved[1], saved[2],
        if_defined(norm_bias), if_defined(initial), if_defined(saved[5]), if_defined(saved[6]),
        ctx->saved_data["reverse"].toBool(), ctx->saved_data["silu"].toBool(), h);
    const at::Tensor none;
    return {du,   ddecay, dgate, dweight, norm_bias.defined() ? dbias : none, initial.defined() ? dinitial : none,
            none, none,   none,  none};
  }
};

Tensors2 scan_autograd(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                       const at::Tensor& norm_weight, const OptionalTensor& norm_bias, const OptionalTensor& initial,
                       const OptionalTensor& absent, const OptionalTensor& restart, bool reverse, bool silu) {
  if (under_transform())
    return gated_scan_by_definition(u, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart,
                                    reverse, silu);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_gated_scan(u, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart, reverse, silu);
  }
  const variable_list out = GatedScanFunction::apply(u, decay_logit, gate_logit, norm_weight, norm_bias, initial,
                                                     absent, restart, reverse, silu);
  return {out[0], out[1]};
}

Tensors6 gradient_autograd(const at::Tensor& grad_units, const OptionalTensor& grad_h, const at::Tensor& decay_logit,
                           const at::Tensor& gate_logit, const at::Tensor& norm_weight, const OptionalTensor& norm_bias,
                           const OptionalTensor& initial, const OptionalTensor& absent, const OptionalTensor& restart,
                           bool reverse, bool silu, const at::Tensor& h) {
  if (at::GradMode::is_enabled())
    return gated_scan_gradient(grad_units, grad_h, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent,
                               restart, reverse, silu, h);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_gated_scan_backward(grad_units, grad_h, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent,
                                  restart, reverse, silu, h);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("gated_scan", scan_autograd);
  m.impl("gated_scan_backward", gradient_autograd);
}

}  // namespace fem
