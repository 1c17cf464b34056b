// Which keys a query may see, as intervals for the kernels and as a mask for the definition; and what is added to
// scores.
#pragma once

#include <vector>

#include "ops/softmax_read/softmax_read.h"

namespace fem {

// Query t sees the keys begin[t] <= i < end[t] that the key mask keeps. Causality, windows, packed sequences and
// streaming all give such intervals, and both borders never decrease with t: the kernels skip tiles by that.
struct Intervals {
  std::vector<int32_t> begin, end;  // one entry a query
};

Intervals visible_intervals(int64_t queries, int64_t keys, bool causal, std::optional<int64_t> window,
                            const OptionalTensor& cu_seqlens);

// For every key the queries between the first and the last that see it.
Intervals transposed(const Intervals& keys_of_query, int64_t keys);

// With the key mask, as a boolean tensor [B or 1, 1, Tq, Tk] on the device of query: plain ATen, which graphs can hold.
at::Tensor visibility(const SoftmaxReadOp::Inputs& in);

// b_{t,i} = bias - slope |position of t - i|, [1, H or 1, Tq, Tk]; of the queries and keys begin <= . < end, if given.
// In the dtype of computation: distances in bfloat16 would be off by whole tokens from 256 on.
struct ScoreTile {
  int64_t query, queries, key, keys;
};
at::Tensor score_bias(const SoftmaxReadOp::Inputs& in, std::optional<ScoreTile> part = std::nullopt);

// Masked tokens do not exist: whatever they hold, even NaN, must not meet a weight of 0. They become 0 in x [B, Tk,
// ...].
at::Tensor real_tokens(const at::Tensor& x, const OptionalTensor& key_mask);

}  // namespace fem
