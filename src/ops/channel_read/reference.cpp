// The definition of channel_read, token by token, in plain ATen.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "ops/channel_read/channel_read.h"
#include "ops/sequences.h"

namespace fem {
namespace {

// Sums of [1, v, exp(beta v)] in units of e^scale. The scale is a choice of units and never has a gradient: whatever
// is made of both is a function of sums e^scale.
struct State {
  at::Tensor scale;  // [N, H, V], -inf: nothing seen
  at::Tensor sums;   // [N, streams, H, V]

  at::Tensor stacked() const { return at::cat({scale.unsqueeze(1), sums}, 1); }
};

at::Tensor or_zero(const at::Tensor& x) { return x.masked_fill(x == -INFINITY, 0); }

State empty_state(const at::Tensor& value, int64_t streams) {
  const int64_t rows = value.size(0), heads = value.size(2), width = value.size(3);
  return {at::full({rows, heads, width}, -INFINITY, value.options()),
          at::zeros({rows, streams, heads, width}, value.options())};
}

// Without weights of their own all tokens count in units of 1.
State state_of(const at::Tensor& initial, bool with_weights) {
  const at::Tensor scale = initial.select(1, 0), sums = initial.slice(1, 1);
  const at::Tensor empty = (sums.select(1, 0) == 0).logical_or(scale == -INFINITY);
  const at::Tensor finite = scale.masked_fill(empty, 0);
  const at::Tensor units = with_weights ? finite.detach() : at::zeros_like(finite);
  return {units.masked_fill(empty, -INFINITY),
          sums.masked_fill(empty.unsqueeze(1), 0) * at::exp(finite - units).unsqueeze(1)};
}

// Time passes by decay; then a token of weight exp(weight) is added, if it is given.
State after(const State& before, const at::Tensor& decay, const at::Tensor& weight, const at::Tensor& token) {
  State next;
  next.scale = (before.scale + decay).detach();
  if (weight.defined()) next.scale = at::maximum(next.scale, weight.detach());
  const at::Tensor units = or_zero(next.scale);
  next.sums = at::exp(before.scale + decay - units).unsqueeze(1) * before.sums;
  if (weight.defined()) next.sums = next.sums + at::exp(weight - units).unsqueeze(1) * token;
  return next;
}

// scale [N, T, H, V] and sums [N, T, streams, H, V] of all tokens.
ScanReads reads_of(const at::Tensor& scale, const at::Tensor& sums, const OptionalTensor& beta) {
  const at::Tensor empty = sums.select(2, 0) == 0;
  const at::Tensor one = sums.select(2, 0).masked_fill(empty, 1);
  ScanReads read;
  read.mean = sums.select(2, 1) / one;
  read.log_normalizer = (or_zero(scale) + one.log()).masked_fill(empty, -INFINITY);
  if (beta) read.free_energy = (sums.select(2, 2).masked_fill(empty, 1) / one).log() / *beta;
  return read;
}

// All of in are of one sequence a row, in the dtype of computation; real [N, T, 1, 1] or undefined.
ScanReads scan(const ChannelScanOp::Inputs& in, const at::Tensor& real) {
  const auto only_real = [&](const at::Tensor& x, double otherwise) {
    return real.defined() ? at::where(real, x, otherwise) : x;
  };
  const at::Tensor value = only_real(in.value, 0), zero = at::zeros({1}, value.options()).expand_as(value);
  const at::Tensor weight = only_real(in.log_weight.value_or(zero), -INFINITY);
  const at::Tensor decay = only_real(in.log_decay.value_or(zero), 0);
  std::vector<at::Tensor> streams{at::ones_like(value), value};
  if (in.beta) streams.push_back(at::exp(*in.beta * value));
  const at::Tensor tokens = at::stack(streams, 2);

  State state = in.initial ? state_of(*in.initial, in.log_weight.has_value()) : empty_state(value, in.streams());
  std::vector<at::Tensor> scales, sums;
  for (int64_t t = 0; t < value.size(1); ++t) {
    const at::Tensor decay_t = decay.select(1, t);
    const State next = after(state, decay_t, weight.select(1, t), tokens.select(1, t));
    const State seen = in.strict ? after(state, decay_t, {}, {}) : next;
    scales.push_back(seen.scale);
    sums.push_back(seen.sums);
    state = next;
  }
  ScanReads read;
  if (scales.empty()) {
    read.mean = read.log_normalizer = at::zeros_like(value);
    if (in.beta) read.free_energy = read.mean;
  } else {
    read = reads_of(at::stack(scales, 1), at::stack(sums, 1), in.beta);
  }
  read.state = state.stacked();
  return read;
}

ScanReads joined(const std::vector<ScanReads>& reads) {
  std::vector<TensorVector> parts(kFieldCount<ScanReads>);
  for (const ScanReads& read : reads) {
    const TensorVector tensors = tensors_of(read);
    for (size_t i = 0; i < tensors.size(); ++i) parts[i].push_back(tensors[i]);
  }
  const auto join = [&](size_t i, int64_t dim) {
    return parts[i].front().defined() ? at::cat(parts[i], dim) : at::Tensor();
  };
  return {join(0, 1), join(1, 1), join(2, 1), join(3, 0), {}};
}

}  // namespace

ChannelScanOp::Outputs ChannelScanOp::definition(const Inputs& in) {
  const auto dtype = in.value.scalar_type(), math = at::toOpMathType(dtype);
  const auto exact = [&](const OptionalTensor& x) { return x ? OptionalTensor(x->to(math)) : x; };
  const Inputs all{
      in.value.to(math), exact(in.beta), exact(in.log_weight), exact(in.log_decay), exact(in.initial), {}, {},
      in.strict};
  const at::Tensor real = in.key_mask ? in.key_mask->unsqueeze(-1).unsqueeze(-1) : at::Tensor();
  ScanReads read;
  if (!in.cu_seqlens) {
    read = scan(all, real);
  } else {
    std::vector<ScanReads> reads;
    for (const Sequence& s : sequences_of(1, in.value.size(1), in.cu_seqlens, ChannelScanOp::kCalled)) {
      const auto cut = [&](const at::Tensor& x) { return x.defined() ? x.slice(1, s.begin, s.end) : x; };
      const auto cut_given = [&](const OptionalTensor& x) { return x ? OptionalTensor(cut(*x)) : x; };
      Inputs one = all;
      one.value = cut(all.value);
      one.log_weight = cut_given(all.log_weight);
      one.log_decay = cut_given(all.log_decay);
      if (all.initial) one.initial = all.initial->slice(0, reads.size(), reads.size() + 1);
      reads.push_back(scan(one, cut(real)));
    }
    read = joined(reads);
  }
  read.mean = read.mean.to(dtype);
  return read;
}

}  // namespace fem
