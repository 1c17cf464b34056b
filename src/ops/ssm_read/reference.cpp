// The definition of ssm_read, token by token in plain ATen, and its gradient.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "ops/sequences.h"
#include "ops/ssm_read/ssm_read.h"

namespace fem {
namespace {

at::Tensor wide(const at::Tensor& x) { return x.to(at::toOpMathType(x.scalar_type())); }

// Masked tokens do not exist: whatever they hold, even NaN, must not meet a weight of 0.
at::Tensor real_tokens(const at::Tensor& x, const OptionalTensor& key_mask) {
  if (!key_mask) return x;
  std::vector<int64_t> shape(x.dim(), 1);
  shape[0] = x.size(0), shape[1] = x.size(1);
  return x.masked_fill(key_mask->logical_not().view(shape), 0);
}

struct Scan {
  at::Tensor sums;   // S u [B, T, streams, H, V]
  at::Tensor state;  // h [B, streams, H, V, R]
};

// u [B, T, streams, H, V] through the recurrence of one row of tokens each, from the state h.
Scan scan(const at::Tensor& u, const at::Tensor& delta, const at::Tensor& A, const at::Tensor& B, const at::Tensor& C,
          at::Tensor h, bool strict, bool delayed) {
  std::vector<at::Tensor> reads;
  // [B, R] of token t beside [B, streams, H, V, R]
  const auto of_token = [](const at::Tensor& x, int64_t t) {
    return x.select(1, t).unsqueeze(1).unsqueeze(1).unsqueeze(1);
  };
  for (int64_t t = 0; t < u.size(1); ++t) {
    const at::Tensor step = delta.select(1, t).unsqueeze(1).unsqueeze(-1);  // [B, 1, H, V, 1]
    const at::Tensor before = h, decayed = at::exp(step * A) * h;
    h = decayed + step * of_token(B, t) * u.select(1, t).unsqueeze(-1);
    reads.push_back(((delayed ? before : strict ? decayed : h) * of_token(C, t)).sum(-1));
  }
  return {reads.empty() ? at::zeros_like(u) : at::stack(reads, 1), h};
}

}  // namespace

SsmScanOp::Outputs SsmScanOp::definition(const Inputs& in) {
  const at::Tensor value = real_tokens(wide(in.value), in.key_mask), delta = real_tokens(wide(in.delta), in.key_mask);
  const at::Tensor B = real_tokens(wide(in.B), in.key_mask), C = wide(in.C), A = wide(in.A);
  std::vector<at::Tensor> inputs{at::ones_like(value), value};
  if (in.beta) inputs.push_back(at::exp(wide(*in.beta) * value));
  const at::Tensor u = real_tokens(at::stack(inputs, 2), in.key_mask);

  const auto sequences = sequences_of(value.size(0), value.size(1), in.cu_seqlens, SsmScanOp::kCalled);
  const auto count = static_cast<int64_t>(sequences.size());
  const at::Tensor initial =
      in.initial ? *in.initial : at::zeros({count, in.streams(), A.size(0), A.size(1), A.size(2)}, value.options());
  at::Tensor sums, state;
  if (in.cu_seqlens) {
    std::vector<at::Tensor> all_sums, all_states;
    for (int64_t n = 0; n < count; ++n) {
      const auto part = [&](const at::Tensor& x) { return x.slice(1, sequences[n].begin, sequences[n].end); };
      const Scan s = scan(part(u), part(delta), A, part(B), part(C), initial.slice(0, n, n + 1), in.strict, in.delayed);
      all_sums.push_back(s.sums);
      all_states.push_back(s.state);
    }
    sums = at::cat(all_sums, 1), state = at::cat(all_states, 0);
  } else {
    const Scan s = scan(u, delta, A, B, C, initial, in.strict, in.delayed);
    sums = s.sums, state = s.state;
  }
  if (!in.strict) sums = sums + wide(in.D) * u;

  const at::Tensor one = sums.select(2, 0), empty = one == 0;
  const at::Tensor normalizer = one.masked_fill(empty, 1);
  const at::Tensor mean = sums.select(2, 1) / normalizer;
  at::Tensor free_energy;
  if (in.beta) free_energy = (sums.select(2, 2) / normalizer).masked_fill(empty, 1).log() / wide(*in.beta);
  return {mean.to(in.value.scalar_type()), free_energy, normalizer.log().masked_fill(empty, -INFINITY), state, {}};
}

}  // namespace fem
