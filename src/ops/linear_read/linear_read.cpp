// fem::linear_read and the scan under it: schema, checks and the choice between kernels and definition.
#include "ops/linear_read/linear_read.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include "ops/recurrent.h"
#include "util/check.h"

namespace fem {
namespace {

void check(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& beta,
           const OptionalTensor& log_decay, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
           const OptionalTensor& initial) {
  const char* op = "linear_read";
  check_recurrent(op, value, beta, key_mask, cu_seqlens);
  const auto batch = value.sym_size(0), tokens = value.sym_size(1), heads = value.sym_size(2);
  check_like_value(op, "query", query, value, {batch, tokens, heads, -1});
  const auto width = query.sym_size(3);
  FEM_CHECK(width > 0, op, ": expected a key width K of at least 1, got query of shape ", shape_of(query));
  check_like_value(op, "key", key, value, {batch, tokens, heads, width});
  if (log_decay) check_like_value(op, "log_decay", *log_decay, value, {batch, tokens, heads});
  if (!initial) return;
  const auto sequences = cu_seqlens ? cu_seqlens->sym_size(0) - 1 : batch;
  const auto columns = linear_state_width(value, beta);
  const auto dtype = at::toOpMathType(value.scalar_type());
  FEM_CHECK(initial->dim() == 4 && initial->sym_size(0) == sequences && initial->sym_size(1) == heads &&
                initial->sym_size(2) == width && initial->sym_size(3) == columns && initial->scalar_type() == dtype &&
                initial->device() == value.device(),
            op, ": expected initial as ", dtype, " [N=", sequences, ", H=", heads, ", K=", width, ", ", columns,
            "] on ", value.device(), " (the state of an earlier call), got ", initial->scalar_type(), " ",
            shape_of(*initial), " on ", initial->device());
}

Tensors5 read_on_cpu(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const OptionalTensor& beta, const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                     const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict) {
  check(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial);
  const auto read = value.scalar_type() == at::kDouble ? linear_scan_by_definition : linear_read_cpu;
  return read(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial, strict);
}

// On every device, in batched products.
Tensors5 read_anywhere(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const OptionalTensor& beta, const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                       const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict) {
  check(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial);
  return linear_scan_in_chunks(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial, strict);
}

Tensors6 gradient_on_cpu(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                         const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                         const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const OptionalTensor& beta, const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                         const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict,
                         const at::Tensor& mean, const at::Tensor& free_energy, const at::Tensor& log_normalizer,
                         const at::Tensor& checkpoints) {
  const auto gradient = value.scalar_type() == at::kDouble ? linear_read_definition_backward : linear_read_backward_cpu;
  return gradient(grad_mean, grad_free_energy, grad_log_normalizer, grad_state, query, key, value, beta, log_decay,
                  key_mask, cu_seqlens, initial, strict, mean, free_energy, log_normalizer, checkpoints);
}

at::Tensor shaped_like(const at::Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); }

Tensors5 read_shapes(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const OptionalTensor& beta, const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                     const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool) {
  check(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial);
  const auto exact = value.options().dtype(at::toOpMathType(value.scalar_type()));
  const auto batch = value.sym_size(0), tokens = value.sym_size(1), heads = value.sym_size(2);
  const auto sequences = cu_seqlens ? cu_seqlens->sym_size(0) - 1 : batch;
  return {shaped_like(value), beta ? at::empty_symint(value.sym_sizes(), exact) : at::empty({0}, exact),
          at::empty_symint({batch, tokens, heads}, exact),
          at::empty_symint({sequences, heads, query.sym_size(3), linear_state_width(value, beta)}, exact),
          empty_linear_checkpoints(query, value, beta)};
}

Tensors6 gradient_shapes(const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                         const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const OptionalTensor& beta, const OptionalTensor& log_decay, const OptionalTensor&,
                         const OptionalTensor&, const OptionalTensor& initial, bool, const at::Tensor&,
                         const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  const auto like = [&](const OptionalTensor& x) { return x ? shaped_like(*x) : at::empty({0}, query.options()); };
  return {like(query), like(key), like(value), like(beta), like(log_decay), like(initial)};
}

}  // namespace

Tensors5 linear_scan_by_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                   const OptionalTensor& beta, const OptionalTensor& log_decay,
                                   const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                   const OptionalTensor& initial, bool strict) {
  check(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial);
  const RecurrentRead read =
      linear_scan_definition(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial, strict);
  return {read.mean.contiguous(), beta ? read.free_energy.contiguous() : at::empty({0}, read.state.options()),
          read.log_normalizer.contiguous(),
          value.size(1) ? read.state.contiguous() : read.state.clone(),  // an output is never an input
          empty_linear_checkpoints(query, value, beta)};
}

at::Tensor empty_linear_checkpoints(const at::Tensor& query, const at::Tensor& value, const OptionalTensor& beta) {
  if (value.scalar_type() == at::kDouble) return at::empty({0}, value.options());
  const auto tokens = value.sym_size(1);
  const auto count = tokens.sym_gt(0).guard_bool(__FILE__, __LINE__) ? (tokens - 1) / kLinearCheckpointTokens : tokens;
  return at::empty_symint(
      {value.sym_size(0), count, value.sym_size(2), query.sym_size(3), linear_state_width(value, beta)},
      value.options().dtype(at::kFloat));
}

Tensors5 call_linear_scan(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const OptionalTensor& beta, const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                          const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict) {
  static const auto op = find_operator<LinearScanOp>("fem::linear_scan");
  return op.call(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial, strict);
}

Tensors6 call_linear_scan_backward(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                   const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                   const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                   const OptionalTensor& beta, const OptionalTensor& log_decay,
                                   const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                   const OptionalTensor& initial, bool strict, const at::Tensor& mean,
                                   const at::Tensor& free_energy, const at::Tensor& log_normalizer,
                                   const at::Tensor& checkpoints) {
  static const auto op = find_operator<LinearScanBackwardOp>("fem::linear_scan_backward");
  return op.call(grad_mean, grad_free_energy, grad_log_normalizer, grad_state, query, key, value, beta, log_decay,
                 key_mask, cu_seqlens, initial, strict, mean, free_energy, log_normalizer, checkpoints);
}

RecurrentRead linear_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const OptionalTensor& beta, const OptionalTensor& log_decay,
                          const RecurrentReadOptions& options) {
  return read_in_directions("linear_read", value, beta, options, [&](const Direction& to) -> RecurrentRead {
    auto [mean, free_energy, log_normalizer, state, checkpoints] =
        call_linear_scan(to.turn(query), to.turn(key), to.turn(value), beta, to.turn(log_decay), to.options.key_mask,
                         to.options.cu_seqlens, to.options.initial, to.strict());
    return {
        {std::move(mean), beta ? std::move(free_energy) : at::Tensor()}, std::move(log_normalizer), std::move(state)};
  });
}

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "linear_read(Tensor query, Tensor key, Tensor value, Tensor? beta, Tensor? log_decay=None, "
      "bool causal=True, Tensor? key_mask=None, Tensor? cu_seqlens=None, Tensor? initial=None) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state)",
      [](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& beta,
         const OptionalTensor& log_decay, bool causal, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
         const OptionalTensor& initial) {
        return tensors_of(linear_read(query, key, value, beta, log_decay, {causal, key_mask, cu_seqlens, initial}));
      });
  m.def(
      "linear_scan(Tensor query, Tensor key, Tensor value, Tensor? beta, Tensor? log_decay=None, "
      "Tensor? key_mask=None, Tensor? cu_seqlens=None, Tensor? initial=None, bool strict=False) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state, Tensor checkpoints)");
  m.def(
      "linear_scan_backward(Tensor? grad_mean, Tensor? grad_free_energy, Tensor? grad_log_normalizer, "
      "Tensor? grad_state, Tensor query, Tensor key, Tensor value, Tensor? beta, Tensor? log_decay, Tensor? key_mask, "
      "Tensor? cu_seqlens, Tensor? initial, bool strict, Tensor mean, Tensor free_energy, Tensor log_normalizer, "
      "Tensor checkpoints) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("linear_scan", read_on_cpu);
  m.impl("linear_scan_backward", gradient_on_cpu);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  m.impl("linear_scan", read_shapes);
  m.impl("linear_scan_backward", gradient_shapes);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {
  m.impl("linear_scan", announced<read_anywhere>);
  m.impl("linear_scan_backward", announced<linear_scan_backward_in_chunks>);
}

}  // namespace fem
