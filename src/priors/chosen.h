// Rows of chosen tokens, for looking at p: what is made for these alone.
#pragma once

#include <ATen/ATen.h>

#include <cmath>

#include "priors/query_key.h"

namespace fem {

// [B, T, ...] -> [B, 1, ..., T], beside rows [B, N, ..., 1] of the chosen.
inline at::Tensor as_tokens(const at::Tensor& x) { return x.movedim(1, -1).unsqueeze(1); }
inline at::Tensor as_chosen(const at::Tensor& x, const at::Tensor& chosen) {
  return x.index_select(1, chosen).unsqueeze(-1);
}

// q_t.k_i of the chosen t, [B, N, H, T].
inline at::Tensor chosen_products(const QueryAndKey& x, const at::Tensor& chosen) {
  return at::einsum("bnhk,bthk->bnht", {x.query.index_select(1, chosen), x.key});
}

// What passes between i and a chosen t, of x [B, T, ...]: its sum from i + 1 to t and, looking back from t < i, from t
// to i - 1. [B, N, ..., T]
inline at::Tensor passed(const at::Tensor& x, const at::Tensor& chosen) {
  const at::Tensor through = x.cumsum(1), before = through - x;
  const at::Tensor past = as_chosen(through, chosen) - as_tokens(through);
  const at::Tensor future = as_tokens(before) - as_chosen(before, chosen);
  std::vector<int64_t> shape(past.dim(), 1);
  shape[1] = -1;
  const at::Tensor earlier = at::arange(x.size(1), chosen.options()) <= chosen.view(shape);
  return at::where(earlier, past, future);
}

// Masked tokens do not exist: no time passes there.
inline at::Tensor where_real(const at::Tensor& x, const Batch& batch) {
  if (!batch.mask) return x;
  std::vector<int64_t> shape(x.dim(), 1);
  shape[0] = x.size(0), shape[1] = x.size(1);
  return x.masked_fill(batch.mask->logical_not().view(shape), 0);
}

}  // namespace fem
