// Keeps query, key, value (or what modulate made them from), beta and the three outputs; exp(beta v), z = exp(beta F)
// and p are recomputed. F is kept in float32: of F in bfloat16, exp(beta F) would be off by 16 % at the cap.
#include <ATen/ATen.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "ops/modulate/again.h"
#include "ops/softmax_read/reference.h"
#include "ops/softmax_read/softmax_read.h"
#include "ops/transforms.h"
#include "util/width.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Whether these are plain tensors of a dtype the kernels know, and nobody traces, wraps, batches or watches them: then
// the kernels may be called past the dispatcher.
bool kernels_serve(at::TensorList tensors) {
  const auto is_plain = [](const at::Tensor& x) {
    const c10::DispatchKeySet keys =
        x.key_set() - c10::autograd_dispatch_keyset_with_ADInplaceOrView - c10::autocast_dispatch_keyset;
    return keys == c10::DispatchKeySet(c10::DispatchKey::CPU) &&
           (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
  };
  return !c10::impl::TorchDispatchModeTLS::any_modes_set() && std::all_of(tensors.begin(), tensors.end(), is_plain);
}

// The operators fem::softmax_read and fem::attention_read differ in who computes.
template <SoftmaxReadOp* read, SoftmaxReadBackwardOp* gradient>
struct SoftmaxReadFunction : torch::autograd::Function<SoftmaxReadFunction<read, gradient>> {
  static constexpr bool is_traceable = true;
  static constexpr bool has_kernels = read == call_softmax_read;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value, const OptionalTensor& beta, std::optional<double> scale,
                               bool causal, std::optional<int64_t> window, const OptionalTensor& key_mask,
                               const OptionalTensor& cu_seqlens) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [mean, free_energy, log_normalizer] =
        read(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
    KeptInputs kept;
    for (const at::Tensor& input : {query, key, value}) kept.add(input);
    kept.save(ctx, {beta.value_or(at::Tensor()), key_mask.value_or(at::Tensor()), cu_seqlens.value_or(at::Tensor()),
                    mean, free_energy, log_normalizer});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["window"] = window;
    ctx->mark_non_differentiable({log_normalizer});
    return {mean, free_energy, log_normalizer};
  }

  // Calls function with the arguments of softmax_read_backward, of these heads only.
  template <typename Function>
  static auto with_heads(AutogradContext* ctx, const SavedInputs& saved, const variable_list& grad, int64_t first,
                         int64_t count, Function&& function) {
    const auto heads = [&](const at::Tensor& x) { return x.dim() > 1 ? x.narrow(2, first, count) : x; };
    const auto beta = saved.other(0).defined() ? OptionalTensor(saved.other(0).narrow(0, first, count)) : std::nullopt;
    return function(heads(grad[0]), heads(grad[1]), saved.heads(0, first, count), saved.heads(1, first, count),
                    saved.heads(2, first, count), beta, heads(saved.other(3)), heads(saved.other(4)),
                    heads(saved.other(5)), ctx->saved_data["scale"].toOptional<double>(),
                    ctx->saved_data["causal"].toBool(), ctx->saved_data["window"].toOptional<int64_t>(),
                    if_defined(saved.other(1)), if_defined(saved.other(2)));
  }

  // A few heads at a time: of what is made again, only theirs is there.
  static Tensors4 backward_in_groups(AutogradContext* ctx, const SavedInputs& saved, const variable_list& grad) {
    constexpr int64_t kGroups = 6;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const int64_t heads = size_of(grad[0], 2), group = (heads + kGroups - 1) / kGroups;
    SoftmaxReadGradients all;
    if (saved.other(0).defined()) all.beta = at::empty_like(saved.other(0));
    for (int64_t first = 0; first < heads; first += group) {
      const int64_t count = std::min(group, heads - first);
      const auto part_of = [&](at::Tensor& whole, const at::Tensor& like) {
        if (!whole.defined()) whole = at::empty({like.size(0), like.size(1), heads, like.size(3)}, like.options());
        return whole.narrow(2, first, count);
      };
      with_heads(
          ctx, saved, grad, first, count,
          [&](const at::Tensor& grad_mean, const at::Tensor& grad_free_energy, at::Tensor query, const at::Tensor& key,
              const at::Tensor& value, const auto&... others) {
            const SoftmaxReadGradients part{part_of(all.query, query), part_of(all.key, key), part_of(all.value, value),
                                            all.beta.defined() ? all.beta.narrow(0, first, count) : all.beta};
            softmax_read_backward_into(part, grad_mean, grad_free_energy, std::move(query), key, value, others...);
          });
    }
    return {all.query, all.key, all.value, all.beta};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const SavedInputs saved(ctx);
    const bool in_groups = has_kernels && saved.is_made_again(0) && !at::GradMode::is_enabled() &&
                           kernels_serve({grad[0], grad[1], saved.other(3), saved.other(5)});
    const auto [dquery, dkey, dvalue, dbeta] = in_groups
                                                   ? backward_in_groups(ctx, saved, grad)
                                                   : with_heads(ctx, saved, grad, 0, size_of(grad[0], 2), gradient);
    const at::Tensor none;
    return {dquery, dkey, dvalue, saved.other(0).defined() ? dbeta : none, none, none, none, none, none};
  }
};

template <SoftmaxReadOp* read, SoftmaxReadBackwardOp* gradient>
Tensors3 read_autograd(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const OptionalTensor& beta, std::optional<double> scale, bool causal,
                       std::optional<int64_t> window, const OptionalTensor& key_mask,
                       const OptionalTensor& cu_seqlens) {
  if (under_transform())
    return softmax_read_by_definition(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return read(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
  }
  const variable_list out =
      SoftmaxReadFunction<read, gradient>::apply(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
  return {out[0], out[1], out[2]};
}

// Second derivatives: the gradient written out in plain ATen, which autograd differentiates by itself.
template <SoftmaxReadBackwardOp* gradient>
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
  return gradient(grad_mean, grad_free_energy, query, key, value, beta, mean, free_energy, log_normalizer, scale,
                  causal, window, key_mask, cu_seqlens);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("softmax_read", read_autograd<call_softmax_read, call_softmax_read_backward>);
  m.impl("softmax_read_backward", gradient_autograd<call_softmax_read_backward>);
  m.impl("attention_read", read_autograd<call_attention_read, call_attention_read_backward>);
  m.impl("attention_read_backward", gradient_autograd<call_attention_read_backward>);
}

}  // namespace fem
