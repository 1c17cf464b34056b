// Keeps the inputs only: both gates are cheaper to compute again than to keep.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/gated_read/gated_read.h"
#include "ops/modulate/again.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GatedReadFunction : torch::autograd::Function<GatedReadFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& mean, const OptionalTensor& free_energy,
                            const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    KeptInputs kept;
    kept.add(temperature_logit.value_or(at::Tensor()));
    kept.add(gate_logit.value_or(at::Tensor()));
    kept.save(ctx, {mean, free_energy.value_or(at::Tensor())});
    ctx->saved_data["eps"] = eps;
    return call_gated_read(mean, free_energy, temperature_logit, gate_logit, eps);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const SavedInputs saved(ctx);
    const at::Tensor &mean = saved.other(0), &free_energy = saved.other(1);
    const at::Tensor temperature = saved.input(0), gate = saved.input(1);
    const auto [dmean, dfree_energy, dtemperature, dgate] =
        call_gated_read_backward(grad[0], mean, if_defined(free_energy), if_defined(temperature), if_defined(gate),
                                 ctx->saved_data["eps"].toDouble());
    const at::Tensor none;
    return {dmean, free_energy.defined() ? dfree_energy : none, temperature.defined() ? dtemperature : none,
            gate.defined() ? dgate : none, none};
  }
};

at::Tensor read_autograd(const at::Tensor& mean, const OptionalTensor& free_energy,
                         const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double eps) {
  if (under_transform()) return gated_read_by_definition(mean, free_energy, temperature_logit, gate_logit, eps);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_gated_read(mean, free_energy, temperature_logit, gate_logit, eps);
  }
  return GatedReadFunction::apply(mean, free_energy, temperature_logit, gate_logit, eps);
}

Tensors4 gradient_autograd(const at::Tensor& grad, const at::Tensor& mean, const OptionalTensor& free_energy,
                           const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double eps) {
  if (at::GradMode::is_enabled())
    return gated_read_gradient(grad, mean, free_energy, temperature_logit, gate_logit, eps);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_gated_read_backward(grad, mean, free_energy, temperature_logit, gate_logit, eps);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("gated_read", read_autograd);
  m.impl("gated_read_backward", gradient_autograd);
}

}  // namespace fem
