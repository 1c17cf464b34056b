// From tensors to the ssm_read kernels: lines of channels, chunks of tokens and the division of work among threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "cpu/partition.h"
#include "ops/exponents.h"
#include "ops/sequences.h"
#include "ops/ssm_read/cpu/kernels.h"
#include "ops/ssm_read/ssm_read.h"
#include "ops/strides.h"

namespace fem {
namespace {

using namespace ssm_kernels;

// [B, T, H, V] as rows of H V channels, a copy only if they are not in one piece.
at::Tensor channel_rows(const at::Tensor& x) {
  const bool unit = x.size(3) == 1 || x.stride(3) == 1;
  const bool whole = x.size(2) == 1 || x.stride(2) == x.size(3);
  return unit && whole ? x : x.contiguous();
}

Rows rows_of(const at::Tensor& x) {
  if (!x.defined()) return {};
  return {x.const_data_ptr(), x.scalar_type() == at::kBFloat16, x.stride(0), x.stride(1)};
}

float* data_of(const at::Tensor& x) { return x.defined() ? x.data_ptr<float>() : nullptr; }

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

std::vector<Chunk> chunks_of(const std::vector<Sequence>& sequences) {
  std::vector<Chunk> chunks;
  for (size_t n = 0; n < sequences.size(); ++n) {
    const auto& [batch, begin, end] = sequences[n];
    for (int64_t t = begin; t < end; t += kChunk)
      chunks.push_back({batch, t, std::min(t + kChunk, end), static_cast<int64_t>(n), t == begin, t + kChunk >= end});
  }
  return chunks;
}

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
struct KernelInputs {
  at::Tensor value, delta, B, C, A, D, beta, key_mask, initial;
  std::vector<Sequence> sequences;
  std::vector<Chunk> chunks;
  int64_t heads, width, line, rank;

  explicit KernelInputs(const SsmScanOp::Inputs& in)
      : value(channel_rows(in.value)),
        delta(channel_rows(in.delta)),
        B(unit_stride(in.B)),
        C(unit_stride(in.C)),
        key_mask(in.key_mask ? in.key_mask->contiguous() : at::Tensor()),
        sequences(sequences_of(value.size(0), value.size(1), in.cu_seqlens, "ssm_read")),
        chunks(chunks_of(sequences)),
        heads(value.size(2)),
        width(value.size(3)),
        line((heads * width + kChannels - 1) / kChannels * kChannels),
        rank(in.A.size(2)) {
    A = to_lines(in.A, line);
    D = to_lines(in.strict ? at::zeros_like(in.D) : in.D, line);
    if (in.beta) beta = to_lines(*in.beta, line, 1);
    if (in.initial) initial = to_lines(*in.initial, line);
  }

  int64_t streams() const { return beta.defined() ? 3 : 2; }
  bool empty() const { return value.numel() == 0; }
  at::Tensor lines(std::vector<int64_t> shape) const {
    shape.push_back(line);
    return at::empty(shape, A.options());
  }

  void fill(Arguments& a, const SsmScanOp::Inputs& from, const at::Tensor& checkpoints) const {
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
    a.A = data_of(A);
    a.D = data_of(D);
    a.beta = data_of(beta);
    a.key_mask = key_mask.defined() ? key_mask.const_data_ptr<bool>() : nullptr;
    a.chunks = chunks.data();
    a.initial = data_of(initial);
    a.checkpoints = data_of(checkpoints);
  }

  // Empty sequences have no chunk: what comes in goes out.
  void pass_empty_sequences(const at::Tensor& to, const at::Tensor& from) const {
    for (size_t n = 0; n < sequences.size(); ++n)
      if (empty() || sequences[n].begin == sequences[n].end) from.defined() ? to[n].copy_(from[n]) : to[n].zero_();
  }
};

// Work in items: groups of channels, which need nothing of each other, and only where those are fewer than the threads
// also runs of chunks. The division depends on the number of threads, never on their timing.
struct Division {
  std::vector<Range> groups, runs;

  Division(const KernelInputs& in) {
    const int64_t threads = at::get_num_threads(), blocks = in.line / kChannels;
    const int64_t count = std::max<int64_t>(1, std::min(blocks, threads));
    for (int64_t g = 0; g < count; ++g)
      groups.push_back({g * blocks / count * kChannels, (g + 1) * blocks / count * kChannels});
    int64_t parts = std::min<int64_t>((threads + count - 1) / count, in.chunks.size());
    // A sequence in two halves would wait for its first half, then read both: nothing is won.
    if (parts == 2 && in.sequences.size() == 1) parts = 1;
    std::vector<double> costs;
    for (const Chunk& chunk : in.chunks) costs.push_back(static_cast<double>(chunk.end - chunk.begin));
    const auto borders = cpu::equal_cost_borders(costs, 1, parts);
    for (int64_t p = 0; p < parts; ++p)
      if (borders[p] < borders[p + 1]) runs.push_back({borders[p], borders[p + 1]});
  }

  template <typename Body>
  void for_items(Body&& body) const {
    const auto columns = static_cast<int64_t>(groups.size());
    at::parallel_for(0, columns * static_cast<int64_t>(runs.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) body(item, item % columns, item / columns);
    });
  }
  int64_t items() const { return static_cast<int64_t>(groups.size() * runs.size()); }
  int64_t last_run() const { return static_cast<int64_t>(runs.size()) - 1; }
};

// The chunks of a run that belong to the sequence of the given one of them.
Range of_one_sequence(const std::vector<Chunk>& chunks, Range run, int64_t chunk) {
  Range part{chunk, chunk + 1};
  while (part.begin > run.begin && chunks[part.begin - 1].sequence == chunks[chunk].sequence) --part.begin;
  while (part.end < run.end && chunks[part.end].sequence == chunks[chunk].sequence) ++part.end;
  return part;
}

// The states before the runs that begin inside a sequence, into their checkpoints: each run's own part at once for all,
// then one after the other what came before.
void states_before_runs(const Forward& a, const KernelInputs& in, const Division& work, float* scratch, int64_t each) {
  if (work.runs.size() == 1) return;
  const int64_t size = in.streams() * in.rank * in.line;
  const at::Tensor elapsed = in.lines({static_cast<int64_t>(work.runs.size())});
  const auto part = [&](int64_t p) { return of_one_sequence(in.chunks, work.runs[p], work.runs[p].end - 1); };
  const auto continues = [&](int64_t p) { return p < work.last_run() && !in.chunks[work.runs[p].end - 1].last; };
  work.for_items([&](int64_t item, int64_t g, int64_t p) {
    if (!continues(p)) return;
    forward_ahead()(a, work.groups[g], part(p), a.checkpoints + work.runs[p].end * size, data_of(elapsed[p]),
                    scratch + item * each);
  });
  for (int64_t p = 0; p < work.last_run(); ++p) {
    if (!continues(p) || in.chunks[part(p).begin].first) continue;
    join()(a, {0, in.line}, data_of(elapsed[p]), a.checkpoints + work.runs[p].begin * size,
           a.checkpoints + work.runs[p].end * size);
  }
}

// The gradients of the states after the runs that end inside a sequence, the same way from the last.
void adjoints_after_runs(const Backward& a, const KernelInputs& in, const Division& work, const at::Tensor& adjoints,
                         float* scratch, int64_t each) {
  if (work.runs.size() == 1) return;
  const at::Tensor elapsed = in.lines({static_cast<int64_t>(work.runs.size())});
  const auto part = [&](int64_t p) { return of_one_sequence(in.chunks, work.runs[p], work.runs[p].begin); };
  const auto continues = [&](int64_t p) { return p > 0 && !in.chunks[work.runs[p].begin].first; };
  work.for_items([&](int64_t item, int64_t g, int64_t p) {
    if (!continues(p)) return;
    backward_ahead()(a, work.groups[g], part(p), data_of(adjoints[p - 1]), data_of(elapsed[p]), scratch + item * each);
  });
  for (int64_t p = work.last_run(); p > 0; --p) {
    if (!continues(p) || in.chunks[part(p).end - 1].last) continue;
    join()(a, {0, in.line}, data_of(elapsed[p]), data_of(adjoints[p]), data_of(adjoints[p - 1]));
  }
}

}  // namespace

void SsmScanOp::kernel(const Inputs& inputs, Outputs& out) {
  const KernelInputs in(inputs);
  const at::Tensor state = in.lines({static_cast<int64_t>(in.sequences.size()), in.streams(), in.rank});
  out.checkpoints.zero_();  // room that no sequence needs must not differ from call to call
  in.pass_empty_sequences(state, in.initial);

  if (!in.empty()) {
    Forward a{};
    in.fill(a, inputs, out.checkpoints);
    a.mean = out.mean.data_ptr();
    a.free_energy = data_of(out.free_energy);
    a.log_normalizer = data_of(out.log_normalizer);
    a.state = data_of(state);
    const Division work(in);
    const int64_t each = forward_scratch()(a);
    const at::Tensor scratch = at::empty({work.items(), each}, in.A.options());
    const at::Tensor largest = at::empty({work.items()}, in.A.options());
    states_before_runs(a, in, work, data_of(scratch), each);
    work.for_items([&, run = forward()](int64_t item, int64_t g, int64_t p) {
      data_of(largest)[item] = run(a, work.groups[g], work.runs[p], data_of(scratch) + item * each);
    });
    check_exponents(largest, "ssm_read");
  }
  out.state.copy_(from_lines(state, in.heads, in.width));
}

SsmScanOp::Inputs SsmScanOp::gradient_kernel(const BackwardOf<SsmScanOp>& b) {
  const Inputs& inputs = b.in;
  const KernelInputs in(inputs);
  const at::Tensor& value = inputs.value;
  const auto rows = [&](const at::Tensor& grad, at::ScalarType dtype) {
    return grad.defined() ? channel_rows(grad.to(dtype)) : grad;
  };
  const at::Tensor grad_mean = rows(b.grads.mean, value.scalar_type());
  const at::Tensor grad_free_energy = inputs.beta ? rows(b.grads.free_energy, at::kFloat) : at::Tensor();
  const at::Tensor grad_log_normalizer = rows(b.grads.log_normalizer, at::kFloat);
  const at::Tensor grad_state = b.grads.state.defined() ? to_lines(b.grads.state, in.line) : at::Tensor();
  const at::Tensor states = b.out.checkpoints.contiguous();

  const Division work(in);
  const auto groups = static_cast<int64_t>(work.groups.size()), runs = static_cast<int64_t>(work.runs.size());
  const int64_t batch = value.size(0), tokens = value.size(1);
  const at::Tensor grad_value = at::empty(value.sizes(), value.options());
  const at::Tensor grad_delta = at::empty(value.sizes(), value.options());
  const at::Tensor grad_initial = in.initial.defined()
                                      ? in.lines({static_cast<int64_t>(in.sequences.size()), in.streams(), in.rank})
                                      : at::Tensor();
  if (grad_initial.defined()) in.pass_empty_sequences(grad_initial, grad_state);
  // One share per group and per run, added in order below.
  const at::Tensor grad_rows = at::empty({groups, batch, tokens, 2, in.rank}, in.A.options());
  if (in.empty()) grad_rows.zero_();
  const at::Tensor grad_channels = in.lines({runs, in.rank + 2}).zero_();

  if (!in.empty()) {
    Backward a{};
    in.fill(a, inputs, states);
    a.grad_mean = rows_of(grad_mean);
    a.grad_free_energy = rows_of(grad_free_energy);
    a.grad_log_normalizer = rows_of(grad_log_normalizer);
    a.grad_state = data_of(grad_state);
    a.grad_value = grad_value.data_ptr();
    a.grad_delta = grad_delta.data_ptr();
    a.grad_initial = data_of(grad_initial);
    const int64_t each = backward_scratch()(a);
    const at::Tensor scratch = at::empty({work.items(), each}, in.A.options());
    const at::Tensor adjoints = in.lines({runs, in.streams(), in.rank});
    adjoints_after_runs(a, in, work, adjoints, data_of(scratch), each);
    work.for_items([&, run = backward()](int64_t item, int64_t g, int64_t p) {
      const Sink sink{data_of(adjoints[p]), data_of(grad_rows[g]), data_of(grad_channels[p])};
      run(a, work.groups[g], work.runs[p], sink, data_of(scratch) + item * each);
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
