// Keeps the inputs and the states at the checkpoints; the states between, exp(beta v) and the sums are recomputed.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/ssm_read/ssm_read.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SsmReadFunction : torch::autograd::Function<SsmReadFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& value, const OptionalTensor& beta,
                               const at::Tensor& delta, const at::Tensor& A, const at::Tensor& B, const at::Tensor& C,
                               const at::Tensor& D, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                               const OptionalTensor& initial, bool strict, bool delayed) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [mean, free_energy, log_normalizer, state, checkpoints] =
        call_ssm_scan(value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed);
    const auto or_undefined = [](const OptionalTensor& x) { return x.value_or(at::Tensor()); };
    ctx->save_for_backward({value, or_undefined(beta), delta, A, B, C, D, or_undefined(key_mask),
                            or_undefined(cu_seqlens), or_undefined(initial), checkpoints});
    ctx->saved_data["strict"] = strict;
    ctx->saved_data["delayed"] = delayed;
    ctx->mark_non_differentiable({checkpoints});
    ctx->set_materialize_grads(false);
    return {mean, free_energy, log_normalizer, state, checkpoints};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list s = ctx->get_saved_variables();
    const auto [dvalue, dbeta, ddelta, dA, dB, dC, dD, dinitial] = call_ssm_scan_backward(
        if_defined(grad[0]), if_defined(grad[1]), if_defined(grad[2]), if_defined(grad[3]), s[0], if_defined(s[1]),
        s[2], s[3], s[4], s[5], s[6], if_defined(s[7]), if_defined(s[8]), if_defined(s[9]),
        ctx->saved_data["strict"].toBool(), ctx->saved_data["delayed"].toBool(), s[10]);
    const at::Tensor none;
    return {dvalue, s[1].defined() ? dbeta : none,    ddelta, dA,  dB, dC, dD, none,
            none,   s[9].defined() ? dinitial : none, none,   none};
  }
};

SsmReadOutputs read_autograd(const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                             const at::Tensor& A, const at::Tensor& B, const at::Tensor& C, const at::Tensor& D,
                             const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                             const OptionalTensor& initial, bool strict, bool delayed) {
  if (under_transform())
    return ssm_scan_by_definition(value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_ssm_scan(value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed);
  }
  const variable_list out =
      SsmReadFunction::apply(value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed);
  return {out[0], out[1], out[2], out[3], out[4]};
}

// Second derivatives: the gradient of the definition, which autograd differentiates by itself.
SsmReadGradients gradient_autograd(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                   const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                   const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                                   const at::Tensor& A, const at::Tensor& B, const at::Tensor& C, const at::Tensor& D,
                                   const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                   const OptionalTensor& initial, bool strict, bool delayed,
                                   const at::Tensor& checkpoints) {
  if (at::GradMode::is_enabled())
    return ssm_scan_definition_gradient(
        {grad_mean, grad_free_energy, grad_log_normalizer, grad_state},
        {value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed});
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_ssm_scan_backward(grad_mean, grad_free_energy, grad_log_normalizer, grad_state, value, beta, delta, A, B,
                                C, D, key_mask, cu_seqlens, initial, strict, delayed, checkpoints);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("ssm_scan", read_autograd);
  m.impl("ssm_scan_backward", gradient_autograd);
}

}  // namespace fem
