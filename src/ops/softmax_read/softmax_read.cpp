// fem::softmax_read and fem::attention_read: checks, shapes, the public functions.
#include "ops/softmax_read/softmax_read.h"

#include <ATen/OpMathType.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <cmath>

#include "ops/checks.h"
#include "ops/exponents.h"
#include "ops/register.h"
#include "ops/sequences.h"
#include "util/check.h"
#include "util/width.h"

namespace fem {

double SoftmaxReadOp::Inputs::scale_of_scores() const {
  return scale.value_or(1 / std::sqrt(static_cast<double>(width_of(query))));
}

void check_attention(const char* op, const SoftmaxReadOp::Inputs& in) {
  const auto &query = in.query, &key = in.key, &value = in.value;
  FEM_CHECK(query.dim() == 4, op, ": expected query of shape [B, T, H, K], got ", shape_of(query));
  const auto batch = query.sym_size(0), heads = query.sym_size(2), width = query.sym_size(3);
  FEM_CHECK(key.dim() == 4 && key.sym_size(0) == batch && key.sym_size(2) == heads && key.sym_size(3) == width, op,
            ": expected key of shape [B=", batch, ", T, H=", heads, ", K=", width, "] to match query, got ",
            shape_of(key));
  FEM_CHECK(width > 0, op, ": expected a key width K of at least 1, got query of shape ", shape_of(query));
  const auto queries = query.sym_size(1), keys = key.sym_size(1);
  FEM_CHECK(value.dim() == 4 && value.sym_size(0) == batch && value.sym_size(1) == keys && value.sym_size(2) == heads,
            op, ": expected value of shape [B=", batch, ", T=", keys, ", H=", heads, ", V] to match key, got ",
            shape_of(value));
  check_float(op, query);
  const auto dtype = query.scalar_type();
  FEM_CHECK(key.scalar_type() == dtype && value.scalar_type() == dtype, op,
            ": expected query, key and value of one dtype, got ", dtype, ", ", key.scalar_type(), " and ",
            value.scalar_type());
  FEM_CHECK(!in.window || *in.window >= 1, op, ": expected a window of at least 1 token, got ", *in.window);
  if (in.key_mask) check_exact(op, "key_mask", *in.key_mask, {batch, keys}, at::kBool, "(true = a real token)");
  if (in.cu_seqlens) {
    FEM_CHECK(batch == 1 && queries == keys, op,
              ": cu_seqlens needs all sequences packed in one row, query and key alike, got query ", shape_of(query),
              " and key ", shape_of(key));
    check_borders(op, *in.cu_seqlens, keys);
  }
}

void SoftmaxReadOp::check(const Inputs& in) {
  const char* op = "softmax_read";
  check_attention(op, in);
  const auto heads = in.query.sym_size(2), queries = in.query.sym_size(1), keys = in.key.sym_size(1);
  const auto dtype = in.query.scalar_type();
  if (in.beta) {
    FEM_CHECK(in.beta->dim() == 2 && in.beta->sym_size(0) == heads && in.beta->sym_size(1) == in.value.sym_size(3),
              "softmax_read: expected beta of shape [H=", heads, ", V=", in.value.sym_size(3), "], got ",
              shape_of(*in.beta));
    FEM_CHECK(in.beta->scalar_type() == dtype, "softmax_read: expected beta as ", dtype, ", got ",
              in.beta->scalar_type());
    check_beta(op, *in.beta);
  }
  if (in.bias) {
    const at::Tensor& bias = *in.bias;
    FEM_CHECK(bias.dim() == 3 && (bias.sym_size(0) == heads || bias.sym_size(0) == 1) && bias.sym_size(1) == queries &&
                  bias.sym_size(2) == keys && bias.scalar_type() == dtype,
              "softmax_read: expected bias as ", dtype, " [H=", heads, " or 1, Tq=", queries, ", Tk=", keys, "], got ",
              bias.scalar_type(), " ", shape_of(bias));
  }
  if (in.slopes) check_exact(op, "slopes", *in.slopes, {heads}, dtype, "(ALiBi: one for each head)");
}

std::vector<Spec> SoftmaxReadOp::outputs(const Inputs& in) {
  const auto dtype = in.query.scalar_type(), exact = at::toOpMathType(dtype);
  const std::vector<c10::SymInt> shape{in.query.sym_size(0), in.query.sym_size(1), in.query.sym_size(2),
                                       in.value.sym_size(3)},
      none{0};
  return {{shape, dtype}, {in.beta ? shape : none, exact}, {{shape[0], shape[1], shape[2]}, exact}};
}

namespace {

SoftmaxReadOp::Inputs inputs_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                const OptionalTensor& beta, const SoftmaxReadOptions& o) {
  return {query, key, value, beta, o.bias, o.slopes, o.scale, o.causal, o.window, o.key_mask, o.cu_seqlens};
}

// As users see it: F in the dtype of the inputs.
SoftmaxRead rounded(const SoftmaxReadOp::Outputs& out, bool with_beta) {
  return {{out.mean, with_beta ? out.free_energy.to(out.mean.scalar_type()) : at::Tensor()}, out.log_normalizer};
}

// Whether these are plain tensors of a dtype the kernels know, and nobody traces, wraps, batches or watches them: then
// the kernels may be called past the dispatcher.
bool kernels_serve(const TensorVector& tensors) {
  const auto fits = [](const at::Tensor& x) { return !x.defined() || (is_plain(x) && x.scalar_type() != at::kDouble); };
  return !c10::impl::TorchDispatchModeTLS::any_modes_set() && std::all_of(tensors.begin(), tensors.end(), fits);
}

}  // namespace

std::optional<SoftmaxReadOp::Inputs> SoftmaxReadOp::gradient_in_parts(
    const BackwardOf<SoftmaxReadOp>& b, const std::vector<torch::autograd::Node*>& makers) {
  constexpr int64_t kGroups = 6;
  if (!makers[0] || b.in.bias || at::GradMode::is_enabled() || !b.grads.mean.defined() ||
      (b.in.beta && !b.grads.free_energy.defined()))
    return std::nullopt;
  if (!kernels_serve({b.grads.mean, b.grads.free_energy, b.out.mean, b.out.log_normalizer})) return std::nullopt;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const int64_t heads = b.out.mean.size(2), group = (heads + kGroups - 1) / kGroups;
  SoftmaxGradients all;
  if (b.in.beta) all.beta = at::empty(b.in.beta->sizes(), b.in.beta->options());
  for (int64_t first = 0; first < heads; first += group) {
    const int64_t count = std::min(group, heads - first);
    const auto of_heads = [&](const Outputs& x) -> Outputs {
      const auto cut = [&](const at::Tensor& y) { return y.dim() > 1 ? y.narrow(2, first, count) : y; };
      return {cut(x.mean), cut(x.free_energy), cut(x.log_normalizer)};
    };
    const auto cut_first = [&](const OptionalTensor& x) { return x ? OptionalTensor(x->narrow(0, first, count)) : x; };
    Inputs in = b.in;
    const auto input = [&](size_t index, const at::Tensor& kept) {
      return makers[index] ? remake_heads(*makers[index], first, count) : kept.narrow(2, first, count);
    };
    in.query = input(0, b.in.query), in.key = input(1, b.in.key), in.value = input(2, b.in.value);
    in.beta = cut_first(in.beta), in.slopes = cut_first(in.slopes);
    if (!in.scale) in.scale = in.scale_of_scores();
    const auto part_of = [&](at::Tensor& whole, const at::Tensor& like) {
      if (!whole.defined()) whole = at::empty({like.size(0), like.size(1), heads, like.size(3)}, like.options());
      return whole.narrow(2, first, count);
    };
    const SoftmaxGradients part{part_of(all.query, in.query),
                                part_of(all.key, in.key),
                                part_of(all.value, in.value),
                                all.beta.defined() ? all.beta.narrow(0, first, count) : all.beta,
                                {}};
    softmax_read_backward_into(part, of_heads(b.grads), std::move(in), of_heads(b.out));
  }
  return Inputs{all.query, all.key, all.value, if_defined(all.beta), {}, {}, {}, false, {}, {}, {}};
}

SoftmaxRead softmax_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const OptionalTensor& beta, const SoftmaxReadOptions& options) {
  return rounded(call<SoftmaxReadOp>(inputs_of(query, key, value, beta, options)), beta.has_value());
}

SoftmaxRead attention_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const OptionalTensor& beta, const SoftmaxReadOptions& options) {
  return rounded(call<AttentionReadOp>(inputs_of(query, key, value, beta, options)), beta.has_value());
}

SoftmaxRead softmax_read_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                    const OptionalTensor& beta, const SoftmaxReadOptions& options) {
  const SoftmaxReadOp::Inputs in = inputs_of(query, key, value, beta, options);
  SoftmaxReadOp::check(in);
  const auto [mean, free_energy, log_normalizer] = SoftmaxReadOp::definition(in);
  return {{mean, free_energy}, log_normalizer};
}

FEM_REGISTER_OPERATOR(SoftmaxReadOp)
FEM_REGISTER_OPERATOR(AttentionReadOp)

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "free_energy_attention(Tensor query, Tensor key, Tensor value, Tensor beta, Tensor? bias=None, "
      "Tensor? slopes=None, float? scale=None, bool causal=True, int? window=None, Tensor? key_mask=None, "
      "Tensor? cu_seqlens=None) -> Tensor",
      [](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& beta,
         const OptionalTensor& bias, const OptionalTensor& slopes, std::optional<double> scale, bool causal,
         std::optional<int64_t> window, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens) {
        return softmax_read(query, key, value, beta, {scale, causal, window, key_mask, cu_seqlens, bias, slopes})
            .free_energy;
      });
}

}  // namespace fem
