// The definition of linear_read in plain ATen: any device, any float dtype, differentiable, time and memory linear in
// T.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "ops/linear_read/linear_read.h"
#include "ops/sequences.h"

namespace fem {
namespace {

constexpr int64_t kChunk = 64;

at::Tensor heads_first(const at::Tensor& x) { return x.transpose(1, 2); }  // [B, T, H, *] <-> [B, H, T, *]

// sum_{tau=i+1..t} g_tau at [..., t, i]. Summed, not subtracted: -inf forgets, and near tokens stay exact anywhere.
at::Tensor between(const at::Tensor& g) {
  const int64_t n = g.size(-1);
  const at::Tensor later = at::ones({n, n}, g.options().dtype(at::kBool)).tril(-1);
  return g.unsqueeze(-1).expand({g.size(0), g.size(1), n, n}).masked_fill(later.logical_not(), 0).cumsum(-2);
}

// One scan, heads first: what query, key [B, H, T, K], mixed [B, H, T, X] and g [B, H, T] (undefined: 0) add up to.
struct Scan {
  at::Tensor sums, state;  // [B, H, T, X], [B, H, K, X]
};

Scan scan(const at::Tensor& query, const at::Tensor& key, const at::Tensor& mixed, const at::Tensor& g,
          at::Tensor state, bool strict) {
  std::vector<at::Tensor> sums;
  for (int64_t begin = 0; begin < query.size(2); begin += kChunk) {
    const auto part = [&](const at::Tensor& x) { return x.slice(2, begin, begin + kChunk); };
    const at::Tensor q = part(query), x = part(mixed);
    at::Tensor k = part(key);
    at::Tensor weights = at::matmul(q, k.transpose(2, 3)), read = at::matmul(q, state);
    if (g.defined()) {
      const at::Tensor decay = between(part(g)).exp(), since_begin = part(g).cumsum(-1).exp();
      weights = weights * decay;
      read = read * since_begin.unsqueeze(-1);
      k = k * decay.select(-2, -1).unsqueeze(-1);
      state = state * since_begin.select(-1, -1).unsqueeze(-1).unsqueeze(-1);
    }
    sums.push_back(at::matmul(weights.tril(strict ? -1 : 0), x) + read);
    state = state + at::matmul(k.transpose(2, 3), x);
  }
  return {sums.empty() ? mixed : at::cat(sums, 2), state};
}

}  // namespace

LinearScanOp::Outputs LinearScanOp::definition(const Inputs& in) {
  const at::Tensor& value = in.value;
  const auto exact = at::toOpMathType(value.scalar_type());
  // Masked tokens do not exist: whatever they hold, even NaN, must not meet a weight of 0.
  const auto real = [&](const at::Tensor& x) {
    const at::Tensor y = x.to(exact);
    if (!in.key_mask) return y;
    const at::Tensor hidden = in.key_mask->logical_not().unsqueeze(-1);
    return y.masked_fill(x.dim() == 4 ? hidden.unsqueeze(-1) : hidden, 0);
  };
  const int64_t width = value.size(3);
  const at::Tensor q = heads_first(in.query.to(exact)), k = heads_first(real(in.key)), v = real(value);
  const at::Tensor g = in.log_decay ? heads_first(real(*in.log_decay)) : at::Tensor();
  const at::Tensor b = in.beta ? in.beta->to(exact) : at::Tensor();
  std::vector<at::Tensor> columns{v};
  if (in.beta) columns.push_back(at::exp(b * v));
  columns.push_back(at::ones({v.size(0), v.size(1), v.size(2), 1}, v.options()));
  const at::Tensor x = heads_first(at::cat(columns, 3));

  const std::vector<Sequence> sequences =
      sequences_of(value.size(0), value.size(1), in.cu_seqlens, LinearScanOp::kCalled);
  const at::Tensor start =
      in.initial ? *in.initial
                 : at::zeros({static_cast<int64_t>(sequences.size()), q.size(1), q.size(3), x.size(3)}, x.options());
  at::Tensor sums, state;
  if (in.cu_seqlens) {
    std::vector<at::Tensor> all_sums, all_states;
    for (size_t n = 0; n < sequences.size(); ++n) {
      const auto part = [&](const at::Tensor& y) {
        return y.defined() ? y.slice(2, sequences[n].begin, sequences[n].end) : y;
      };
      const Scan one = scan(part(q), part(k), part(x), part(g), start.narrow(0, static_cast<int64_t>(n), 1), in.strict);
      all_sums.push_back(one.sums);
      all_states.push_back(one.state);
    }
    sums = at::cat(all_sums, 2), state = at::cat(all_states, 0);
  } else {
    const Scan all = scan(q, k, x, g, start, in.strict);
    sums = all.sums, state = all.state;
  }

  sums = heads_first(sums);
  const at::Tensor total = sums.slice(3, -1), empty = total == 0, one = total.masked_fill(empty, 1);
  ScanReads read;
  read.mean = (sums.slice(3, 0, width).masked_fill(empty, 0) / one).to(value.scalar_type());
  read.log_normalizer = one.log().masked_fill(empty, -INFINITY).squeeze(-1);
  if (in.beta) read.free_energy = (sums.slice(3, width, 2 * width).masked_fill(empty, 1) / one).log() / b;
  read.state = state;
  return read;
}

}  // namespace fem
