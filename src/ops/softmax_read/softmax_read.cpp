// fem::softmax_read: schema, checks and the choice between kernels and definition.
#include "ops/softmax_read/softmax_read.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include "ops/sequences.h"
#include "ops/softmax_read/reference.h"
#include "util/check.h"

namespace fem {
namespace {

void check(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& beta,
           const std::optional<int64_t>& window, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens) {
  FEM_CHECK(query.dim() == 4, "softmax_read: expected query of shape [B, T, H, K], got ", shape_of(query));
  const auto batch = query.sym_size(0), heads = query.sym_size(2), width = query.sym_size(3);
  FEM_CHECK(key.dim() == 4 && key.sym_size(0) == batch && key.sym_size(2) == heads && key.sym_size(3) == width,
            "softmax_read: expected key of shape [B=", batch, ", T, H=", heads, ", K=", width, "] to match query, got ",
            shape_of(key));
  FEM_CHECK(width > 0, "softmax_read: expected a key width K of at least 1, got query of shape ", shape_of(query));
  const auto keys = key.sym_size(1);
  FEM_CHECK(value.dim() == 4 && value.sym_size(0) == batch && value.sym_size(1) == keys && value.sym_size(2) == heads,
            "softmax_read: expected value of shape [B=", batch, ", T=", keys, ", H=", heads, ", V] to match key, got ",
            shape_of(value));
  const auto dtype = query.scalar_type();
  FEM_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble,
            "softmax_read: expected float32, bfloat16 or float64, got ", dtype,
            " (float16 cannot hold exp(beta v): cast to bfloat16)");
  FEM_CHECK(key.scalar_type() == dtype && value.scalar_type() == dtype,
            "softmax_read: expected query, key and value of one dtype, got ", dtype, ", ", key.scalar_type(), " and ",
            value.scalar_type());
  FEM_CHECK(key.device() == query.device() && value.device() == query.device(),
            "softmax_read: expected query, key and value on one device, got ", query.device(), ", ", key.device(),
            " and ", value.device());
  if (beta) {
    FEM_CHECK(beta->dim() == 2 && beta->sym_size(0) == heads && beta->sym_size(1) == value.sym_size(3),
              "softmax_read: expected beta of shape [H=", heads, ", V=", value.sym_size(3), "], got ", shape_of(*beta));
    FEM_CHECK(beta->scalar_type() == dtype && beta->device() == query.device(), "softmax_read: expected beta as ",
              dtype, " on ", query.device(), ", got ", beta->scalar_type(), " on ", beta->device());
  }
  FEM_CHECK(!window || *window >= 1, "softmax_read: expected a window of at least 1 token, got ", *window);
  if (key_mask) {
    FEM_CHECK(key_mask->scalar_type() == at::kBool && key_mask->dim() == 2 && key_mask->sym_size(0) == batch &&
                  key_mask->sym_size(1) == keys && key_mask->device() == query.device(),
              "softmax_read: expected key_mask as bool [B=", batch, ", T=", keys, "] on ", query.device(),
              " (true = a real token), got ", key_mask->scalar_type(), " ", shape_of(*key_mask), " on ",
              key_mask->device());
  }
  if (cu_seqlens) {
    FEM_CHECK(cu_seqlens->dim() == 1 && cu_seqlens->sym_size(0) >= 2 &&
                  (cu_seqlens->scalar_type() == at::kInt || cu_seqlens->scalar_type() == at::kLong),
              "softmax_read: expected cu_seqlens as int32 or int64 [n + 1], got ", cu_seqlens->scalar_type(), " ",
              shape_of(*cu_seqlens));
    FEM_CHECK(batch == 1 && query.sym_size(1) == keys,
              "softmax_read: cu_seqlens needs all sequences packed in one row, query and key alike, got query ",
              shape_of(query), " and key ", shape_of(key));
  }
}

SoftmaxReadOptions options_of(std::optional<double> scale, bool causal, std::optional<int64_t> window,
                              const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens) {
  return {scale, causal, window, key_mask, cu_seqlens};
}

Tensors4 gradient_by_definition(const at::Tensor& grad_mean, const at::Tensor& grad_free_energy,
                                const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                const OptionalTensor& beta, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                std::optional<double> scale, bool causal, std::optional<int64_t> window,
                                const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens) {
  const SoftmaxReadGradients d = softmax_read_definition_backward(
      grad_mean, grad_free_energy, query, key, value, beta, options_of(scale, causal, window, key_mask, cu_seqlens));
  return {d.query.contiguous(), d.key.contiguous(), d.value.contiguous(),
          beta ? d.beta.contiguous() : at::empty({0}, query.options())};
}

Tensors3 read_on_cpu(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const OptionalTensor& beta, std::optional<double> scale, bool causal,
                     std::optional<int64_t> window, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens) {
  check(query, key, value, beta, window, key_mask, cu_seqlens);
  const auto read = query.scalar_type() == at::kDouble ? softmax_read_by_definition : softmax_read_cpu;
  return read(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
}

Tensors4 gradient_on_cpu(const at::Tensor& grad_mean, const at::Tensor& grad_free_energy, const at::Tensor& query,
                         const at::Tensor& key, const at::Tensor& value, const OptionalTensor& beta,
                         const at::Tensor& mean, const at::Tensor& free_energy, const at::Tensor& log_normalizer,
                         std::optional<double> scale, bool causal, std::optional<int64_t> window,
                         const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens) {
  const auto gradient = query.scalar_type() == at::kDouble ? gradient_by_definition : softmax_read_backward_cpu;
  return gradient(grad_mean, grad_free_energy, query, key, value, beta, mean, free_energy, log_normalizer, scale,
                  causal, window, key_mask, cu_seqlens);
}

// On every device, by torch's attention.
Tensors3 read_anywhere(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const OptionalTensor& beta, std::optional<double> scale, bool causal,
                       std::optional<int64_t> window, const OptionalTensor& key_mask,
                       const OptionalTensor& cu_seqlens) {
  check(query, key, value, beta, window, key_mask, cu_seqlens);
  return softmax_read_by_attention(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
}

Tensors3 read_shapes(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const OptionalTensor& beta, std::optional<double>, bool, std::optional<int64_t> window,
                     const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens) {
  check(query, key, value, beta, window, key_mask, cu_seqlens);
  const std::vector<c10::SymInt> shape{query.sym_size(0), query.sym_size(1), query.sym_size(2), value.sym_size(3)};
  const auto exact = query.options().dtype(at::toOpMathType(query.scalar_type()));
  return {at::empty_symint(shape, query.options()), beta ? at::empty_symint(shape, exact) : at::empty({0}, exact),
          at::empty_symint({shape[0], shape[1], shape[2]}, exact)};
}

Tensors4 gradient_shapes(const at::Tensor&, const at::Tensor&, const at::Tensor& query, const at::Tensor& key,
                         const at::Tensor& value, const OptionalTensor& beta, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&, std::optional<double>, bool, std::optional<int64_t>, const OptionalTensor&,
                         const OptionalTensor&) {
  const auto like = [](const at::Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  return {like(query), like(key), like(value), beta ? like(*beta) : at::empty({0}, query.options())};
}

}  // namespace

Tensors3 softmax_read_by_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                    const OptionalTensor& beta, std::optional<double> scale, bool causal,
                                    std::optional<int64_t> window, const OptionalTensor& key_mask,
                                    const OptionalTensor& cu_seqlens) {
  check(query, key, value, beta, window, key_mask, cu_seqlens);
  if (cu_seqlens) borders_of(*cu_seqlens, key.size(1), "softmax_read");  // checks
  const SoftmaxRead read =
      softmax_read_definition(query, key, value, beta, options_of(scale, causal, window, key_mask, cu_seqlens));
  const auto exact = at::toOpMathType(query.scalar_type());
  return {read.mean.contiguous(),
          beta ? read.free_energy.to(exact).contiguous() : at::empty({0}, query.options().dtype(exact)),
          read.log_normalizer.to(exact).contiguous()};
}

Tensors3 call_softmax_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const OptionalTensor& beta, std::optional<double> scale, bool causal,
                           std::optional<int64_t> window, const OptionalTensor& key_mask,
                           const OptionalTensor& cu_seqlens) {
  static const auto op = find_operator<SoftmaxReadOp>("fem::softmax_read");
  return op.call(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
}

Tensors4 call_softmax_read_backward(const at::Tensor& grad_mean, const at::Tensor& grad_free_energy,
                                    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                    const OptionalTensor& beta, const at::Tensor& mean, const at::Tensor& free_energy,
                                    const at::Tensor& log_normalizer, std::optional<double> scale, bool causal,
                                    std::optional<int64_t> window, const OptionalTensor& key_mask,
                                    const OptionalTensor& cu_seqlens) {
  static const auto op = find_operator<SoftmaxReadBackwardOp>("fem::softmax_read_backward");
  return op.call(grad_mean, grad_free_energy, query, key, value, beta, mean, free_energy, log_normalizer, scale, causal,
                 window, key_mask, cu_seqlens);
}

Tensors3 call_attention_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const OptionalTensor& beta, std::optional<double> scale, bool causal,
                             std::optional<int64_t> window, const OptionalTensor& key_mask,
                             const OptionalTensor& cu_seqlens) {
  static const auto op = find_operator<SoftmaxReadOp>("fem::attention_read");
  return op.call(query, key, value, beta, scale, causal, window, key_mask, cu_seqlens);
}

Tensors4 call_attention_read_backward(const at::Tensor& grad_mean, const at::Tensor& grad_free_energy,
                                      const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                      const OptionalTensor& beta, const at::Tensor& mean, const at::Tensor& free_energy,
                                      const at::Tensor& log_normalizer, std::optional<double> scale, bool causal,
                                      std::optional<int64_t> window, const OptionalTensor& key_mask,
                                      const OptionalTensor& cu_seqlens) {
  static const auto op = find_operator<SoftmaxReadBackwardOp>("fem::attention_read_backward");
  return op.call(grad_mean, grad_free_energy, query, key, value, beta, mean, free_energy, log_normalizer, scale, causal,
                 window, key_mask, cu_seqlens);
}

SoftmaxRead softmax_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const OptionalTensor& beta, const SoftmaxReadOptions& options) {
  auto [mean, free_energy, log_normalizer] = call_softmax_read(query, key, value, beta, options.scale, options.causal,
                                                               options.window, options.key_mask, options.cu_seqlens);
  const at::Tensor rounded = beta ? free_energy.to(mean.scalar_type()) : at::Tensor();
  return {{std::move(mean), rounded}, std::move(log_normalizer)};
}

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "free_energy_attention(Tensor query, Tensor key, Tensor value, Tensor beta, float? scale=None, "
      "bool causal=True, int? window=None, Tensor? key_mask=None, Tensor? cu_seqlens=None) -> Tensor",
      [](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& beta,
         std::optional<double> scale, bool causal, std::optional<int64_t> window, const OptionalTensor& key_mask,
         const OptionalTensor& cu_seqlens) {
        return softmax_read(query, key, value, beta, {scale, causal, window, key_mask, cu_seqlens}).free_energy;
      });
  for (const std::string op : {"softmax_read", "attention_read"}) {
    const std::string read =
        "(Tensor query, Tensor key, Tensor value, Tensor? beta, float? scale=None, bool causal=True, "
        "int? window=None, Tensor? key_mask=None, Tensor? cu_seqlens=None) "
        "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer)";
    const std::string gradient =
        "(Tensor grad_mean, Tensor grad_free_energy, Tensor query, Tensor key, Tensor value, "
        "Tensor? beta, Tensor mean, Tensor free_energy, Tensor log_normalizer, float? scale, bool causal, int? window, "
        "Tensor? key_mask, Tensor? cu_seqlens) -> (Tensor, Tensor, Tensor, Tensor)";
    m.def((op + read).c_str());
    m.def((op + "_backward" + gradient).c_str());
  }
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("softmax_read", read_on_cpu);
  m.impl("softmax_read_backward", gradient_on_cpu);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  for (const char* op : {"softmax_read", "attention_read"}) m.impl(op, read_shapes);
  for (const char* op : {"softmax_read_backward", "attention_read_backward"}) m.impl(op, gradient_shapes);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {
  m.impl("softmax_read", announced<read_anywhere>);
  m.impl("softmax_read_backward", announced<softmax_read_backward_by_attention>);
  m.impl("attention_read", read_anywhere);
  m.impl("attention_read_backward", softmax_read_backward_by_attention);
}

}  // namespace fem
