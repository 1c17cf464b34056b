// fem::linear_read and the scan under it.
#include "ops/linear_read/linear_read.h"

#include <ATen/OpMathType.h>

#include "ops/checks.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {

void LinearScanOp::check(const Inputs& in) {
  const char* op = kCalled;
  const at::Tensor& value = in.value;
  check_recurrent(op, value, in.beta, in.key_mask, in.cu_seqlens);
  const auto batch = value.sym_size(0), tokens = value.sym_size(1), heads = value.sym_size(2);
  check_like(op, "query", in.query, "value", value, {batch, tokens, heads, kAnySize});
  const auto width = in.query.sym_size(3);
  FEM_CHECK(width > 0, op, ": expected a key width K of at least 1, got query of shape ", shape_of(in.query));
  check_like(op, "key", in.key, "value", value, {batch, tokens, heads, width});
  if (in.log_decay) check_like(op, "log_decay", *in.log_decay, "value", value, {batch, tokens, heads});
  if (in.initial)
    check_exact(op, "initial", *in.initial, {sequence_count(value, in.cu_seqlens), heads, width, in.columns()},
                at::toOpMathType(value.scalar_type()), "(the state of an earlier call)");
}

std::vector<Spec> LinearScanOp::outputs(const Inputs& in) {
  const at::Tensor& value = in.value;
  const auto dtype = value.scalar_type(), exact = at::toOpMathType(dtype);
  const auto shape = value.sym_sizes().vec();
  const auto width = in.query.sym_size(3), columns = in.columns();
  const bool any = shape[1].sym_gt(0).guard_bool(__FILE__, __LINE__);
  const c10::SymInt count = any ? (shape[1] - 1) / kLinearCheckpointTokens : shape[1];
  const std::vector<c10::SymInt> none{0}, checkpoints{shape[0], count, shape[2], width, columns};
  return {{shape, dtype},
          {in.beta ? shape : none, exact},
          {{shape[0], shape[1], shape[2]}, exact},
          {{sequence_count(value, in.cu_seqlens), shape[2], width, columns}, exact},
          {dtype == at::kDouble ? none : checkpoints, exact}};
}

namespace {

auto inputs_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& beta,
               const OptionalTensor& log_decay) {
  return [&](const Direction& d) -> LinearScanOp::Inputs {
    return {d.reversed(query), d.reversed(key),    d.reversed(value),    beta,      d.reversed(log_decay),
            d.options.initial, d.options.key_mask, d.options.cu_seqlens, d.strict()};
  };
}

}  // namespace

RecurrentRead linear_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const OptionalTensor& beta, const OptionalTensor& log_decay,
                          const RecurrentReadOptions& options) {
  return read_in_directions(LinearScanOp::kCalled, call<LinearScanOp>, value, beta, options,
                            inputs_of(query, key, value, beta, log_decay));
}

RecurrentRead linear_read_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                     const OptionalTensor& beta, const OptionalTensor& log_decay,
                                     const RecurrentReadOptions& options) {
  return read_in_directions(LinearScanOp::kCalled, checked_definition<LinearScanOp>, value, beta, options,
                            inputs_of(query, key, value, beta, log_decay));
}

FEM_REGISTER_OPERATOR(LinearScanOp)

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "linear_read(Tensor query, Tensor key, Tensor value, Tensor? beta, Tensor? log_decay=None, "
      "bool causal=True, Tensor? key_mask=None, Tensor? cu_seqlens=None, Tensor? initial=None) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state)",
      [](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& beta,
         const OptionalTensor& log_decay, bool causal, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
         const OptionalTensor& initial) {
        return as_tuple(linear_read(query, key, value, beta, log_decay, {causal, key_mask, cu_seqlens, initial}));
      });
}

}  // namespace fem
