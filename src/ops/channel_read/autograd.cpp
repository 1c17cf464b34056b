// Keeps the inputs and the checkpoints, 4 numbers a channel for every kChunk tokens; sums are recomputed from them.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/channel_read/channel_read.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor or_none(const OptionalTensor& x) { return x.value_or(at::Tensor()); }

struct ChannelReadFunction : torch::autograd::Function<ChannelReadFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& value, const OptionalTensor& beta,
                               const OptionalTensor& log_weight, const OptionalTensor& log_decay,
                               const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                               const OptionalTensor& initial, bool strict) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [mean, free_energy, log_normalizer, state, checkpoints] =
        call_channel_scan(value, beta, log_weight, log_decay, key_mask, cu_seqlens, initial, strict);
    ctx->save_for_backward({value, or_none(beta), or_none(log_weight), or_none(log_decay), or_none(key_mask),
                            or_none(cu_seqlens), or_none(initial), checkpoints});
    ctx->saved_data["strict"] = strict;
    ctx->mark_non_differentiable({checkpoints});
    ctx->set_materialize_grads(false);
    return {mean, free_energy, log_normalizer, state, checkpoints};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [value, beta, log_weight, log_decay, initial] = call_channel_scan_backward(
        if_defined(grad[0]), if_defined(grad[1]), if_defined(grad[2]), if_defined(grad[3]), saved[0],
        if_defined(saved[1]), if_defined(saved[2]), if_defined(saved[3]), if_defined(saved[4]), if_defined(saved[5]),
        if_defined(saved[6]), saved[7], ctx->saved_data["strict"].toBool());
    const at::Tensor none;
    const auto given = [&](const at::Tensor& gradient, const at::Tensor& input) {
      return input.defined() ? gradient : none;
    };
    return {value,
            given(beta, saved[1]),
            given(log_weight, saved[2]),
            given(log_decay, saved[3]),
            none,
            none,
            given(initial, saved[6]),
            none};
  }
};

Tensors5 read_autograd(const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_weight,
                       const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                       const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict) {
  if (under_transform())
    return channel_scan_by_definition(value, beta, log_weight, log_decay, key_mask, cu_seqlens, initial, strict);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_channel_scan(value, beta, log_weight, log_decay, key_mask, cu_seqlens, initial, strict);
  }
  const variable_list out =
      ChannelReadFunction::apply(value, beta, log_weight, log_decay, key_mask, cu_seqlens, initial, strict);
  return {out[0], out[1], out[2], out[3], out[4]};
}

// Second derivatives: the definition, differentiated twice.
Tensors5 gradient_autograd(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                           const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                           const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_weight,
                           const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                           const OptionalTensor& cu_seqlens, const OptionalTensor& initial,
                           const at::Tensor& checkpoints, bool strict) {
  if (at::GradMode::is_enabled())
    return channel_scan_gradient({grad_mean, grad_free_energy, grad_log_normalizer, grad_state},
                                 {value, beta, log_weight, log_decay, key_mask, cu_seqlens, initial, strict});
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_channel_scan_backward(grad_mean, grad_free_energy, grad_log_normalizer, grad_state, value, beta,
                                    log_weight, log_decay, key_mask, cu_seqlens, initial, checkpoints, strict);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("channel_scan", read_autograd);
  m.impl("channel_scan_backward", gradient_autograd);
}

}  // namespace fem
