#include "ops/softmax_read/visibility.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>

#include "ops/sequences.h"

namespace fem {
namespace {

// First and one-past-last position of the sequence each position belongs to.
Intervals sequence_borders(int64_t length, const at::Tensor& cu_seqlens) {
  Intervals sequence{std::vector<int32_t>(length), std::vector<int32_t>(length)};
  for (const Sequence& s : sequences_of(1, length, cu_seqlens, "softmax_read")) {
    std::fill(sequence.begin.begin() + s.begin, sequence.begin.begin() + s.end, static_cast<int32_t>(s.begin));
    std::fill(sequence.end.begin() + s.begin, sequence.end.begin() + s.end, static_cast<int32_t>(s.end));
  }
  return sequence;
}

}  // namespace

Intervals visible_intervals(int64_t queries, int64_t keys, bool causal, std::optional<int64_t> window,
                            const OptionalTensor& cu_seqlens) {
  Intervals visible = cu_seqlens ? sequence_borders(queries, *cu_seqlens)
                                 : Intervals{std::vector<int32_t>(queries, 0),
                                             std::vector<int32_t>(queries, static_cast<int32_t>(keys))};
  if (window) window = std::min(*window, queries + keys);  // wider ones hide nothing, and sums stay numbers
  for (int64_t t = 0; t < queries; ++t) {
    const int64_t position = causal ? keys - queries + t : t;
    int64_t begin = visible.begin[t];
    int64_t end = visible.end[t];
    if (causal) end = std::min(end, position + 1);
    if (window) begin = std::max(begin, position - *window + 1);
    if (window && !causal) end = std::min(end, position + *window);
    visible.end[t] = static_cast<int32_t>(std::max<int64_t>(end, 0));
    visible.begin[t] = static_cast<int32_t>(std::min<int64_t>(begin, visible.end[t]));
  }
  return visible;
}

Intervals transposed(const Intervals& keys_of_query, int64_t keys) {
  const auto queries = static_cast<int32_t>(keys_of_query.begin.size());
  Intervals queries_of_key;
  int32_t first = 0, past = 0;  // both borders only move on, as those of the queries do
  for (int64_t key = 0; key < keys; ++key) {
    while (first < queries && keys_of_query.end[first] <= key) ++first;
    while (past < queries && keys_of_query.begin[past] <= key) ++past;
    queries_of_key.begin.push_back(first);
    queries_of_key.end.push_back(std::max(first, past));
  }
  return queries_of_key;
}

namespace {

// Positions of the queries among the keys, [Tq, 1], and of the keys, [Tk].
struct PositionsOf {
  at::Tensor query, key;

  explicit PositionsOf(const SoftmaxReadOp::Inputs& in) {
    const c10::SymInt queries = in.query.sym_size(1), keys = in.key.sym_size(1);
    const at::TensorOptions integers = in.query.options().dtype(at::kLong);
    key = at::arange(keys, integers);
    query = at::arange(queries, integers).add(in.causal ? keys - queries : c10::SymInt(0)).unsqueeze(-1);
  }
};

}  // namespace

at::Tensor visibility(const SoftmaxReadOp::Inputs& in) {
  const auto [position, index] = PositionsOf(in);
  at::Tensor visible =
      at::ones_symint({1, 1, in.query.sym_size(1), in.key.sym_size(1)}, in.query.options().dtype(at::kBool));
  if (in.causal) visible = visible.logical_and(index <= position);
  if (in.window) {
    const at::Tensor before = position - index;  // compared, not added to: the window may be any number
    visible = visible.logical_and(before < *in.window);
    if (!in.causal) visible = visible.logical_and(-before < *in.window);
  }
  if (in.cu_seqlens) {  // queries and keys are the same tokens
    const at::Tensor sequence = at::bucketize(index, *in.cu_seqlens, /*out_int32=*/false, /*right=*/true);
    visible = visible.logical_and(sequence == sequence.unsqueeze(-1));
  }
  if (in.key_mask) visible = visible.logical_and(in.key_mask->unsqueeze(1).unsqueeze(1));
  return visible;
}

at::Tensor score_bias(const SoftmaxReadOp::Inputs& in, std::optional<ScoreTile> part) {
  const at::ScalarType exact = at::toOpMathType(in.query.scalar_type());
  at::Tensor all;
  if (in.bias) {
    all = in.bias->unsqueeze(0);
    if (part) all = all.narrow(2, part->query, part->queries).narrow(3, part->key, part->keys);
    all = all.to(exact);
  }
  if (in.slopes) {
    auto [position, index] = PositionsOf(in);
    if (part) position = position.narrow(0, part->query, part->queries), index = index.narrow(0, part->key, part->keys);
    const at::Tensor sloped = in.slopes->to(exact).view({1, -1, 1, 1}) * (position - index).abs().to(exact);
    all = all.defined() ? all - sloped : -sloped;
  }
  return all;
}

at::Tensor real_tokens(const at::Tensor& x, const OptionalTensor& key_mask) {
  if (!key_mask) return x;
  return x.masked_fill(key_mask->logical_not().unsqueeze(-1).unsqueeze(-1), 0);
}

}  // namespace fem
