// Keeps query, key, value, beta and the three outputs; exp(beta v), z = exp(beta F) and p are recomputed.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/softmax_read/reference.h"
#include "ops/softmax_read/softmax_read.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SoftmaxReadFunction : torch::autograd::Function<SoftmaxReadFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value, const OptionalTensor& beta, std::optional<double> scale,
                               bool causal, std::optional<int64_t> window, const OptionalTensor& key_mask,
                               const OptionalTensor& cu_seqlens) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [mean, free_energy, log_normalizer] =
        call_softmax_read(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
    ctx->save_for_backward({query, key, value, beta.value_or(at::Tensor()), key_mask.value_or(at::Tensor()),
                            cu_seqlens.value_or(at::Tensor()), mean, free_energy, log_normalizer});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["window"] = window;
    ctx->mark_non_differentiable({log_normalizer});
    return {mean, free_energy, log_normalizer};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [dquery, dkey, dvalue, dbeta] = call_softmax_read_backward(
        grad[0], grad[1], saved[0], saved[1], saved[2], if_defined(saved[3]), saved[6], saved[7], saved[8],
        ctx->saved_data["scale"].toOptional<double>(), ctx->saved_data["causal"].toBool(),
        ctx->saved_data["window"].toOptional<int64_t>(), if_defined(saved[4]), if_defined(saved[5]));
    const at::Tensor none;
    return {dquery, dkey, dvalue, saved[3].defined() ? dbeta : none, none, none, none, none, none};
  }
};

Tensors3 read_autograd(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const OptionalTensor& beta, std::optional<double> scale, bool causal,
                       std::optional<int64_t> window, const OptionalTensor& key_mask,
                       const OptionalTensor& cu_seqlens) {
  if (under_transform())
    return softmax_read_by_definition(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
  const variable_list out =
      SoftmaxReadFunction::apply(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
  return {out[0], out[1], out[2]};
}

// Second derivatives: the gradient written out in plain ATen, which autograd differentiates by itself.
Tensors4 gradient_autograd(const at::Tensor& grad_mean, const at::Tensor& grad_free_energy, const at::Tensor& query,
                           const at::Tensor& key, const at::Tensor& value, const OptionalTensor& beta,
                           const at::Tensor& mean, const at::Tensor& free_energy, const at::Tensor& log_normalizer,
                           std::optional<double> scale, bool causal, std::optional<int64_t> window,
                           const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens) {
  if (at::GradMode::is_enabled()) {
    const SoftmaxReadGradients d = softmax_read_definition_backward(
        grad_mean, grad_free_energy, query, key, value, beta, {scale, causal, window, key_mask, cu_seqlens});
    return {d.query, d.key, d.value, beta ? d.beta : at::empty({0}, query.options())};
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_softmax_read_backward(grad_mean, grad_free_energy, query, key, value, beta, mean, free_energy,
                                    log_normalizer, scale, causal, window, key_mask, cu_seqlens);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("softmax_read", read_autograd);
  m.impl("softmax_read_backward", gradient_autograd);
}

}  // namespace fem
