#include "ops/newton_read/newton_read.h"

#include <ATen/OpMathType.h>

#include <cmath>

#include "ops/checks.h"
#include "ops/register.h"
#include "ops/softmax_read/visibility.h"
#include "util/check.h"

namespace fem {
namespace {

at::Tensor by_heads(const at::Tensor& x) { return x.transpose(1, 2); }  // [B, T, H, *] <-> [B, H, T, *]

NewtonReadOp::Inputs inputs_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                               const at::Tensor& alpha, const NewtonReadOptions& o) {
  return {query, key, value, alpha, o.of_values, o.rho, o.scale, o.causal, o.key_mask, o.cu_seqlens};
}

}  // namespace

void NewtonReadOp::check(const Inputs& in) {
  check_attention("newton_read", in.attention());
  check_like("newton_read", "alpha", in.alpha, "query", in.query, {in.query.sym_size(2)});
  FEM_CHECK(std::isfinite(in.rho), "newton_read: expected rho to be a number, got ", in.rho);
  FEM_CHECK(!in.of_values || in.rho == 0, "newton_read: expected rho = 0 with of_values, got ", in.rho,
            "; queries and values share no space, only queries and keys do");
}

std::vector<Spec> NewtonReadOp::outputs(const Inputs& in) {
  const auto exact = at::toOpMathType(in.query.scalar_type());
  const auto batch = in.query.sym_size(0), queries = in.query.sym_size(1), heads = in.query.sym_size(2);
  return {{{batch, queries, heads, in.value.sym_size(3)}, in.query.scalar_type()},
          {{batch, queries, heads, in.space().sym_size(3)}, exact},
          {{batch, queries, heads}, exact}};
}

NewtonReadOp::Outputs NewtonReadOp::definition(const Inputs& in) {
  const SoftmaxReadOp::Inputs attention = in.attention();
  const at::Tensor query = by_heads(in.query), key = by_heads(real_tokens(in.key, in.key_mask)),
                   value = by_heads(real_tokens(in.value, in.key_mask)), space = in.of_values ? value : key;
  const at::Tensor hidden = visibility(attention).logical_not(), empty = hidden.all(-1, true);
  const at::Tensor scores = at::matmul(query * attention.scale_of_scores(), key.transpose(2, 3));
  // Rows that see nothing keep numbers, which meet only zeros: of infinities alone there is no softmax.
  const at::Tensor p =
      at::softmax(scores.masked_fill(hidden.logical_and(empty.logical_not()), -INFINITY), -1).masked_fill(hidden, 0);
  const at::Tensor m = at::matmul(p, space), g = in.of_values ? m : m - in.rho * query;
  const at::Tensor tilt = at::matmul(g, space.transpose(2, 3)) - (m * g).sum(-1, true);
  const at::Tensor w = p * (1 + in.alpha.view({-1, 1, 1}) * tilt);
  return {by_heads(at::matmul(w, value)), by_heads(m),
          scores.detach().masked_fill(hidden, -INFINITY).logsumexp(-1).transpose(1, 2)};
}

at::Tensor newton_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& alpha,
                       const NewtonReadOptions& options) {
  return call<NewtonReadOp>(inputs_of(query, key, value, alpha, options)).read;
}

at::Tensor newton_read_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const at::Tensor& alpha, const NewtonReadOptions& options) {
  const NewtonReadOp::Inputs in = inputs_of(query, key, value, alpha, options);
  NewtonReadOp::check(in);
  return NewtonReadOp::definition(in).read;
}

FEM_REGISTER_OPERATOR(NewtonReadOp)

}  // namespace fem
