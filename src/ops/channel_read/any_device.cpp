// channel_read on devices without kernels of their own: the definition on chunks side by side (ops/chunks.h).
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "ops/autograd.h"
#include "ops/channel_read/channel_read.h"
#include "ops/chunks.h"

namespace fem {
namespace {

// The sums of both, one of them after the decay. A scale is a choice of units, without a gradient.
at::Tensor joined_states(const at::Tensor& before, const at::Tensor& decay, const at::Tensor& added, bool has_weights) {
  const auto scale_of = [](const at::Tensor& state) {
    return state.select(1, 0).masked_fill(state.select(1, 1) == 0, -INFINITY);  // empty sums
  };
  const at::Tensor a = decay.defined() ? scale_of(before) + decay : scale_of(before), b = scale_of(added);
  const at::Tensor largest = at::maximum(a, b).detach(), empty = largest == -INFINITY;
  const at::Tensor scale = has_weights ? largest : at::zeros_like(largest).masked_fill(empty, -INFINITY);
  const at::Tensor units = scale.masked_fill(empty, 0);
  const auto sums = [&](const at::Tensor& state, const at::Tensor& log_weight) {
    return (log_weight - units).exp().unsqueeze(1) * state.slice(1, 1);
  };
  return at::cat({scale.unsqueeze(1), sums(before, a) + sums(added, b)}, 1);
}

// Tokens: value, log_weight, log_decay. Parameters: beta.
ChunkScan chunks_of(const ChannelScanOp::Inputs& in, int64_t portion_memory) {
  constexpr int64_t kTokens = 32;
  const auto rows_of = [strict = in.strict](const ChunkRows& rows,
                                            const OptionalTensor& initial) -> ChannelScanOp::Inputs {
    return {rows.tokens[0],
            if_defined(rows.parameters[0]),
            if_defined(rows.tokens[1]),
            if_defined(rows.tokens[2]),
            initial,
            rows.real,
            std::nullopt,
            strict};
  };
  ChunkScan scan;
  scan.most_tokens = kTokens;
  scan.portion_memory = portion_memory;
  scan.token_memory = 12 * in.streams() * in.value.size(2) * in.value.size(3);
  scan.summarise = [=](const ChunkRows& rows) -> std::vector<at::Tensor> {
    const at::Tensor added = ChannelScanOp::definition(rows_of(rows, std::nullopt)).state;
    if (!rows.tokens[2].defined()) return {added};
    at::Tensor decay = rows.tokens[2].to(added.scalar_type());
    if (rows.real) decay = decay.masked_fill(rows.real->logical_not().unsqueeze(-1).unsqueeze(-1), 0);
    return {added, decay.sum(1)};
  };
  scan.advance = [has_weights = in.log_weight.has_value()](const at::Tensor& before,
                                                           const std::vector<at::Tensor>& summary) {
    return joined_states(before, summary.size() > 1 ? summary[1] : at::Tensor(), summary[0], has_weights);
  };
  scan.read = [=](const ChunkRows& rows, const at::Tensor& before) -> std::vector<at::Tensor> {
    const ScanReads read = ChannelScanOp::definition(rows_of(rows, before));
    return {read.mean, read.free_energy, read.log_normalizer};
  };
  return scan;
}

ScanInputs scan_inputs(const ChannelScanOp::Inputs& in) {
  const auto exact = in.value.options().dtype(at::toOpMathType(in.value.scalar_type()));
  at::Tensor initial = or_undefined(in.initial);
  if (!in.initial) {
    const int64_t sequences = in.cu_seqlens ? in.cu_seqlens->size(0) - 1 : in.value.size(0);
    initial = at::zeros({sequences, 1 + in.streams(), in.value.size(2), in.value.size(3)}, exact);
    initial.select(1, 0).fill_(-INFINITY);
  }
  return {{in.value, or_undefined(in.log_weight), or_undefined(in.log_decay)},
          {in.beta ? in.beta->to(exact) : at::Tensor()},
          initial,
          in.key_mask,
          in.cu_seqlens};
}

}  // namespace

ChannelScanOp::Outputs ChannelScanOp::elsewhere(const Inputs& in, int64_t portion_memory) {
  if (in.value.numel() == 0) return definition(in);
  return scan_in_chunks(kCalled, chunks_of(in, portion_memory), scan_inputs(in));
}

ChannelScanOp::Inputs ChannelScanOp::gradient_elsewhere(const BackwardOf<ChannelScanOp>& b, int64_t portion_memory) {
  if (b.in.value.numel() == 0) return gradient_of_definition(b);
  const ScanGradients d = gradient_in_chunks(kCalled, chunks_of(b.in, portion_memory), scan_inputs(b.in), b.grads);
  return {d.tokens[0], d.parameters[0], d.tokens[1], d.tokens[2], d.initial, {}, {}, false};
}

}  // namespace fem
