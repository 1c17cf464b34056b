// Keeps the inputs, mean, free energy and log-normaliser, and a state every kLinearCheckpointTokens tokens; weights,
// exp(beta v) and the states in between are recomputed.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/linear_read/linear_read.h"
#include "ops/modulate/again.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearReadFunction : torch::autograd::Function<LinearReadFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_decay,
                               const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                               const OptionalTensor& initial, bool strict) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [mean, free_energy, log_normalizer, state, checkpoints] =
        call_linear_scan(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial, strict);
    const at::Tensor none;
    KeptInputs kept;
    for (const at::Tensor& input : {query, key, value}) kept.add(input);
    kept.save(ctx, {beta.value_or(none), log_decay.value_or(none), key_mask.value_or(none), cu_seqlens.value_or(none),
                    initial.value_or(none), mean, free_energy, log_normalizer, checkpoints});
    ctx->saved_data["strict"] = strict;
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable({checkpoints});
    return {mean, free_energy, log_normalizer, state, checkpoints};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const SavedInputs saved(ctx);
    const auto other = [&](size_t index) { return if_defined(saved.other(index)); };
    const auto [dquery, dkey, dvalue, dbeta, dlog_decay, dinitial] = call_linear_scan_backward(
        if_defined(grad[0]), if_defined(grad[1]), if_defined(grad[2]), if_defined(grad[3]), saved.input(0),
        saved.input(1), saved.input(2), other(0), other(1), other(2), other(3), other(4),
        ctx->saved_data["strict"].toBool(), saved.other(5), saved.other(6), saved.other(7), saved.other(8));
    const at::Tensor none;
    const auto if_given = [&](const at::Tensor& input, const at::Tensor& gradient) {
      return input.defined() ? gradient : none;
    };
    return {dquery,
            dkey,
            dvalue,
            if_given(saved.other(0), dbeta),
            if_given(saved.other(1), dlog_decay),
            none,
            none,
            if_given(saved.other(4), dinitial),
            none};
  }
};

Tensors5 read_autograd(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const OptionalTensor& beta, const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                       const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict) {
  if (under_transform())
    return linear_scan_by_definition(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial, strict);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_linear_scan(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial, strict);
  }
  const variable_list out =
      LinearReadFunction::apply(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial, strict);
  return {out[0], out[1], out[2], out[3], out[4]};
}

// Second derivatives: the gradient of the definition, which autograd differentiates by itself.
Tensors6 gradient_autograd(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                           const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                           const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const OptionalTensor& beta, const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                           const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict,
                           const at::Tensor& mean, const at::Tensor& free_energy, const at::Tensor& log_normalizer,
                           const at::Tensor& checkpoints) {
  if (at::GradMode::is_enabled())
    return linear_read_definition_backward(grad_mean, grad_free_energy, grad_log_normalizer, grad_state, query, key,
                                           value, beta, log_decay, key_mask, cu_seqlens, initial, strict, mean,
                                           free_energy, log_normalizer, checkpoints);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_linear_scan_backward(grad_mean, grad_free_energy, grad_log_normalizer, grad_state, query, key, value,
                                   beta, log_decay, key_mask, cu_seqlens, initial, strict, mean, free_energy,
                                   log_normalizer, checkpoints);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("linear_scan", read_autograd);
  m.impl("linear_scan_backward", gradient_autograd);
}

}  // namespace fem
