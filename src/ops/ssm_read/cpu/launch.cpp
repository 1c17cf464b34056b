// From tensors to the ssm_read kernels: lines of channels. ops/scan_work.h divides the work.
#include <ATen/ATen.h>

#include "ops/exponents.h"
#include "ops/kernel_tensors.h"
#include "ops/scan_work.h"
#include "ops/ssm_read/cpu/kernels.h"
#include "ops/ssm_read/ssm_read.h"

namespace fem {
namespace {

using namespace ssm_kernels;

// [B, T, H, V] as rows of H V channels, a copy only if they are not in one piece.
at::Tensor channel_rows(const at::Tensor& x) {
  const bool unit = x.size(3) == 1 || x.stride(3) == 1;
  const bool whole = x.size(2) == 1 || x.stride(2) == x.size(3);
  return unit && whole ? x : x.contiguous();
}

// [.., H, V, R] or [H, V] as float32 lines [.., R, line] or [line], and back.
at::Tensor to_lines(const at::Tensor& x, int64_t line, float beyond = 0) {
  at::Tensor flat = x.dim() == 2 ? x.reshape(-1) : x.flatten(-3, -2).transpose(-2, -1);
  std::vector<int64_t> shape = flat.sizes().vec();
  shape.back() = line;
  const at::Tensor lines = at::full(shape, beyond, x.options().dtype(at::kFloat));
  lines.narrow(-1, 0, flat.size(-1)).copy_(flat);
  return lines;
}
at::Tensor from_lines(const at::Tensor& lines, int64_t heads, int64_t width) {
  return lines.narrow(-1, 0, heads * width).transpose(-2, -1).unflatten(-2, {heads, width}).contiguous();
}

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
struct KernelInputs {
  at::Tensor value, delta, B, C, A, D, beta, key_mask, initial, checkpoints;
  std::vector<Sequence> sequences;
  int64_t heads, width, line, rank;
  ScanWork work;

  KernelInputs(const SsmScanOp::Inputs& in, const at::Tensor& checkpoints)
      : value(channel_rows(in.value)),
        delta(channel_rows(in.delta)),
        B(unit_stride(in.B)),
        C(unit_stride(in.C)),
        key_mask(contiguous(in.key_mask)),
        checkpoints(checkpoints.contiguous()),
        sequences(sequences_of(value.size(0), value.size(1), in.cu_seqlens, SsmScanOp::kCalled)),
        heads(value.size(2)),
        width(value.size(3)),
        line((heads * width + kChannels - 1) / kChannels * kChannels),
        rank(in.A.size(2)),
        work(sequences, {.groups = line / kChannels,
                         .token_cost = kChannels * rank,
                         .start_cost = 1,
                         .unit = kChunk,
                         .keeps_first = true,
                         .least_units = 1,
                         // A sequence in two halves would wait for its first half, then read both.
                         .least_parts = 3}) {
    A = to_lines(in.A, line);
    D = to_lines(in.strict ? at::zeros_like(in.D) : in.D, line);
    if (in.beta) beta = to_lines(*in.beta, line, 1);
    if (in.initial) initial = to_lines(*in.initial, line);
  }

  int64_t streams() const { return beta.defined() ? 3 : 2; }
  int64_t state_floats() const { return streams() * rank * line; }
  bool empty() const { return value.numel() == 0; }
  at::Tensor lines(std::vector<int64_t> shape) const {
    shape.push_back(line);
    return at::empty(shape, A.options());
  }
  at::Tensor states() const { return lines({static_cast<int64_t>(sequences.size()), streams(), rank}); }

  void fill(Arguments& a, const SsmScanOp::Inputs& from) const {
    a.bfloat16 = value.scalar_type() == at::kBFloat16;
    a.reads = from.delayed ? Reads::kBefore : from.strict ? Reads::kDecayed : Reads::kAfter;
    a.tokens = value.size(1);
    a.channels = heads * width;
    a.line = line;
    a.rank = rank;
    a.value = rows_of(value);
    a.delta = rows_of(delta);
    a.B = rows_of(B);
    a.C = rows_of(C);
    a.A = data_of<float>(A);
    a.D = data_of<float>(D);
    a.beta = data_of<float>(beta);
    a.key_mask = data_of<bool>(key_mask);
    a.checkpoints = output_of<float>(checkpoints);
  }

  // What comes into a sequence without tokens goes out of it.
  void pass_empty_sequences(const at::Tensor& to, const at::Tensor& from) const {
    for (size_t n = 0; n < sequences.size(); ++n)
      if (empty() || sequences[n].begin == sequences[n].end) from.defined() ? to[n].copy_(from[n]) : to[n].zero_();
  }
};

}  // namespace

void SsmScanOp::kernel(const Inputs& inputs, Outputs& out) {
  const KernelInputs in(inputs, out.checkpoints);
  const at::Tensor state = in.states();
  out.checkpoints.zero_();  // room that no sequence needs must not differ from call to call
  in.pass_empty_sequences(state, in.initial);

  if (!in.empty()) {
    Forward a{};
    in.fill(a, inputs);
    a.mean = out.mean.data_ptr();
    a.free_energy = output_of<float>(out.free_energy);
    a.log_normalizer = output_of<float>(out.log_normalizer);
    const int64_t floats = forward_scratch()(a);
    const ScanStates states = in.work.states(in.state_floats(), in.initial, in.checkpoints, state);
    in.work.run_ahead(
        states, in.line, floats,
        [&](const Segment& segment, Groups groups, const float* before, float* after, float* elapsed, float* scratch) {
          advance()(a, segment, groups, before, after, elapsed, scratch);
        },
        [&](const Segment&, Groups groups, const float* before, const float* elapsed, float* after) {
          join()(a, groups, before, elapsed, after);
        });
    const at::Tensor largest = in.work.largest(floats, [&](const Share& share, const Segment& segment, float* scratch) {
      return forward()(a, segment, share.groups, states.entering(share.segment), states.result(share.segment), scratch);
    });
    check_exponents(largest, kCalled);
  }
  out.state.copy_(from_lines(state, in.heads, in.width));
}

SsmScanOp::Inputs SsmScanOp::gradient_kernel(const BackwardOf<SsmScanOp>& b) {
  const Inputs& inputs = b.in;
  const KernelInputs in(inputs, b.out.checkpoints);
  const at::Tensor& value = inputs.value;
  const auto rows = [&](const at::Tensor& grad, at::ScalarType dtype) {
    return grad.defined() ? channel_rows(grad.to(dtype)) : grad;
  };
  const at::Tensor grad_mean = rows(b.grads.mean, value.scalar_type());
  const at::Tensor grad_free_energy = inputs.beta ? rows(b.grads.free_energy, at::kFloat) : at::Tensor();
  const at::Tensor grad_log_normalizer = rows(b.grads.log_normalizer, at::kFloat);
  const at::Tensor grad_state = b.grads.state.defined() ? to_lines(b.grads.state, in.line) : at::Tensor();
  const at::Tensor grad_value = like(value), grad_delta = like(value);
  const at::Tensor grad_initial = in.initial.defined() ? in.states() : at::Tensor();
  if (grad_initial.defined()) in.pass_empty_sequences(grad_initial, grad_state);
  // Sums over channels and over tokens: one for every share of a segment and for every part, added in order below.
  const at::Tensor grad_rows =
      at::zeros({in.work.most_shares(), value.size(0), value.size(1), 2, in.rank}, in.A.options());
  const at::Tensor grad_channels = in.lines({in.work.parts(), in.rank + 2}).zero_();

  if (!in.empty()) {
    Backward a{};
    in.fill(a, inputs);
    a.grad_mean = rows_of(grad_mean);
    a.grad_free_energy = rows_of(grad_free_energy);
    a.grad_log_normalizer = rows_of(grad_log_normalizer);
    a.grad_value = grad_value.data_ptr();
    a.grad_delta = grad_delta.data_ptr();
    const int64_t floats = backward_scratch()(a);
    const ScanStates gradients = in.work.gradients(in.state_floats(), grad_state, grad_initial);
    in.work.run_ahead(
        gradients, in.line, floats,
        [&](const Segment& segment, Groups groups, const float* after, float* before, float* elapsed, float* scratch) {
          retreat()(a, segment, groups, after, before, elapsed, scratch);
        },
        [&](const Segment&, Groups groups, const float* after, const float* elapsed, float* before) {
          join()(a, groups, after, elapsed, before);
        });
    in.work.run(floats, [&](const Share& share, const Segment& segment, float* scratch) {
      const Sink sink{output_of<float>(grad_rows[share.rank]), output_of<float>(grad_channels[share.part])};
      backward()(a, segment, share.groups, gradients.entering(share.segment), gradients.result(share.segment), sink,
                 scratch);
    });
  }

  const at::Tensor of_rows = grad_rows.sum(0), of_channels = grad_channels.sum(0).narrow(-1, 0, in.heads * in.width);
  // Copies: the outputs of an operator share no memory.
  const auto channels = [&](int64_t row) { return of_channels[row].view({in.heads, in.width}).clone(); };
  Inputs d;
  d.value = grad_value, d.delta = grad_delta;
  if (inputs.beta) d.beta = channels(in.rank + 1);
  d.A = of_channels.narrow(0, 0, in.rank).t().reshape({in.heads, in.width, in.rank}).clone();
  d.B = of_rows.select(2, 0).clone(), d.C = of_rows.select(2, 1).clone();
  if (!inputs.strict) d.D = channels(in.rank);
  if (inputs.initial) d.initial = from_lines(grad_initial, in.heads, in.width);
  return d;
}

}  // namespace fem
