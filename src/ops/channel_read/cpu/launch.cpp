// From tensors to the channel_read kernels: views, memory and the division of work among threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "cpu/partition.h"
#include "ops/channel_read/channel_read.h"
#include "ops/channel_read/cpu/kernels.h"
#include "ops/exponents.h"
#include "ops/sequences.h"
#include "ops/strides.h"

namespace fem {
namespace {

using namespace channel_kernels;

constexpr int64_t kLeastElements = 8192;  // tokens times channels for which another thread pays
constexpr int64_t kLeastChunks = 4;       // of a segment of a divided sequence

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
class KernelInputs {
 public:
  explicit KernelInputs(const ChannelScanOp::Inputs& in)
      : heads_(in.value.size(2)),
        width_(in.value.size(3)),
        beta_(in.beta ? in.beta->to(at::kFloat).contiguous() : at::Tensor()),
        key_mask_(in.key_mask ? in.key_mask->contiguous() : at::Tensor()),
        initial_(in.initial ? in.initial->contiguous() : at::Tensor()) {}

  // The tensor [B, T, H, V] as rows, in the dtype it has.
  Rows add(const at::Tensor& x) {
    if (!x.defined()) return {};
    const at::Tensor& kept = kept_.emplace_back(unit_stride(x));
    flat_ &= kept.stride(2) == width_ || heads_ == 1;
    return {kept.const_data_ptr(), kept.scalar_type() == at::kBFloat16, kept.stride(0), kept.stride(1), kept.stride(2)};
  }

  // To be called after every add: only then it is known whether all tensors have the channels of all heads in a row.
  void fill(Arguments& a, const ChannelScanOp::Inputs& in, const std::vector<Segment>& segments,
            const at::Tensor& checkpoints) const {
    a.strict = in.strict;
    a.with_weights = in.log_weight.has_value();
    a.with_decays = in.log_decay.has_value();
    a.tokens = in.value.size(1);
    a.heads = flat_ ? 1 : heads_;
    a.width = flat_ ? heads_ * width_ : width_;
    a.beta = beta_.defined() ? beta_.const_data_ptr<float>() : nullptr;
    a.key_mask = key_mask_.defined() ? key_mask_.const_data_ptr<bool>() : nullptr;
    a.segments = segments.data();
    a.segment_count = static_cast<int64_t>(segments.size());
    a.initial = initial_.defined() ? initial_.const_data_ptr<float>() : nullptr;
    a.checkpoints = checkpoints.data_ptr<float>();
  }

 private:
  int64_t heads_, width_;
  at::Tensor beta_, key_mask_, initial_;
  std::vector<at::Tensor> kept_;
  bool flat_ = true;
};

// Every sequence in one segment, or in several where there are fewer sequences and groups of channels than threads.
std::vector<Segment> segments_of(const ChannelScanOp::Inputs& in) {
  const auto sequences = sequences_of(in.value.size(0), in.value.size(1), in.cu_seqlens, "channel_read");
  const auto count = static_cast<int64_t>(sequences.size());
  const int64_t channels = in.value.size(2) * in.value.size(3), threads = at::get_num_threads();
  const int64_t items = std::max<int64_t>(count * ((channels + kChannels - 1) / kChannels), 1);
  const int64_t parts = (threads + items - 1) / items, row = in.value.size(1) / kChunk + 1;
  std::vector<Segment> segments;
  for (int64_t n = 0; n < count; ++n) {
    const Sequence& s = sequences[n];
    // As outputs() has it.
    const int64_t checkpoint = in.cu_seqlens ? s.begin / kChunk + n : n * row;
    const int64_t chunks = (s.end - s.begin + kChunk - 1) / kChunk;
    const int64_t divided = std::clamp<int64_t>(chunks / kLeastChunks, 1, parts);
    for (int64_t i = 0; i < divided; ++i) {
      const int64_t from = chunks * i / divided, to = chunks * (i + 1) / divided;
      segments.push_back({n, s.batch, s.begin + from * kChunk, std::min(s.begin + to * kChunk, s.end),
                          checkpoint + from, i == 0, i == divided - 1});
    }
  }
  return segments;
}

// Calls run(begin, end, scratch) for runs of items of nearly equal cost, in parallel, each with scratch of its own.
template <typename Run>
void for_items(const Arguments& a, int64_t floats_a_channel, Run&& run) {
  std::vector<double> costs;
  double total = 0;
  for (int64_t s = 0; s < a.segment_count; ++s) {
    costs.push_back(1 + static_cast<double>(a.segments[s].end - a.segments[s].begin));
    total += costs.back();
  }
  const auto enough = static_cast<int64_t>(total * static_cast<double>(a.channels()) / kLeastElements) + 1;
  const int64_t parts = std::min<int64_t>(at::get_num_threads(), enough);
  const int64_t floats = a.groups() * kChannels * floats_a_channel;
  const at::Tensor scratch = at::empty({parts, floats}, at::kFloat);
  if (parts == 1) return run(0, a.groups() * a.segment_count, scratch.data_ptr<float>());
  const auto borders = cpu::equal_cost_borders(costs, a.groups(), parts);
  at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part)
      run(borders[part], borders[part + 1], scratch.data_ptr<float>() + part * floats);
  });
}

// Walks through the segments' summaries in order and leaves in the checkpoints where each segment starts.
void connect(const Forward& a, const float* summaries) {
  const int64_t channels = a.channels(), streams = a.streams(), row = (1 + streams) * channels;
  at::parallel_for(0, channels, 64, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double scale = -INFINITY, sums[3] = {};
      for (int64_t s = 0; s < a.segment_count; ++s) {
        const Segment& segment = a.segments[s];
        if (segment.first) {
          const float* initial = a.initial ? a.initial + segment.sequence * row + c : nullptr;
          const bool empty = !initial || initial[channels] == 0 || initial[0] == -INFINITY;
          scale = empty ? -INFINITY : initial[0];
          for (int64_t i = 0; i < streams; ++i) sums[i] = empty ? 0 : initial[(1 + i) * channels];
        } else {
          float* checkpoint = a.checkpoints + segment.checkpoint * row + c;
          checkpoint[0] = static_cast<float>(scale);
          for (int64_t i = 0; i < streams; ++i) checkpoint[(1 + i) * channels] = static_cast<float>(sums[i]);
        }
        const float* own = summaries + s * kSummary * channels + c;
        const double decayed = scale + own[channels] + own[2 * channels];
        const double own_scale = own[3 * channels] == 0 ? -INFINITY : own[0];
        scale = std::max(decayed, own_scale);
        const auto share = [&](double of) { return of == -INFINITY ? 0 : std::exp(of - scale); };
        for (int64_t i = 0; i < streams; ++i)
          sums[i] = share(decayed) * sums[i] + share(own_scale) * own[(3 + i) * channels];
      }
    }
  });
}

// The same backwards: arriving [segments, streams, channels] holds the gradient after each sequence's last segment.
void connect_backward(const Backward& a, const float* summaries, float* arriving) {
  const int64_t channels = a.channels(), streams = a.streams();
  at::parallel_for(0, channels, 64, [&](int64_t begin, int64_t end) {
    for (int64_t s = a.segment_count - 1; s > 0; --s) {
      if (a.segments[s].first) continue;
      const float* own = summaries + s * kSummaryBackward * channels;
      const float* after = arriving + s * streams * channels;
      float* before = arriving + (s - 1) * streams * channels;
      for (int64_t i = 0; i < streams; ++i)
        for (int64_t c = begin; c < end; ++c)
          before[i * channels + c] = own[(1 + i) * channels + c] + own[c] * after[i * channels + c];
    }
  });
}

bool divided(const std::vector<Segment>& segments) {
  return std::any_of(segments.begin(), segments.end(), [](const Segment& s) { return !s.first; });
}

}  // namespace

void ChannelScanOp::kernel(const Inputs& in, Outputs& out) {
  const auto exact = in.value.options().dtype(at::kFloat);
  out.checkpoints.zero_();  // room that no sequence needs must not differ from call to call
  const std::vector<Segment> segments = segments_of(in);
  KernelInputs inputs(in);
  Forward a{};
  a.value = inputs.add(in.value);
  a.log_weight = inputs.add(or_undefined(in.log_weight));
  a.log_decay = inputs.add(or_undefined(in.log_decay));
  inputs.fill(a, in, segments, out.checkpoints);
  const bool low = in.value.scalar_type() == at::kBFloat16;
  a.mean = {out.mean.data_ptr(), low};
  a.free_energy = {out.free_energy.data_ptr(), false};
  a.log_normalizer = {out.log_normalizer.data_ptr(), false};
  a.state = out.state.data_ptr<float>();
  const at::Tensor largest = at::empty({a.groups() * a.segment_count}, exact);
  a.largest = largest.data_ptr<float>();
  if (divided(segments)) {
    const at::Tensor summaries = at::empty({a.segment_count, kSummary, a.channels()}, exact);
    for_items(a, 0, [&, run = summarise()](int64_t begin, int64_t end, float*) {
      run(a, begin, end, summaries.data_ptr<float>());
    });
    connect(a, summaries.const_data_ptr<float>());
  }
  for_items(a, kStateFloats,
            [&, run = forward()](int64_t begin, int64_t end, float* scratch) { run(a, begin, end, scratch); });
  if (in.beta) check_exponents(largest, "channel_read");
}

ChannelScanOp::Inputs ChannelScanOp::gradient_kernel(const BackwardOf<ChannelScanOp>& b) {
  const Inputs& in = b.in;
  const auto exact = in.value.options().dtype(at::kFloat);
  const auto like = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
  const auto like_given = [&](const OptionalTensor& x) { return x ? OptionalTensor(like(*x)) : x; };
  Inputs d;
  d.value = like(in.value), d.log_weight = like_given(in.log_weight), d.log_decay = like_given(in.log_decay);
  d.initial = like_given(in.initial);
  const std::vector<Segment> segments = segments_of(in);

  KernelInputs inputs(in);
  Backward a{};
  a.value = inputs.add(in.value);
  a.log_weight = inputs.add(or_undefined(in.log_weight));
  a.log_decay = inputs.add(or_undefined(in.log_decay));
  const auto as_float = [](const at::Tensor& x) { return x.defined() ? x.to(at::kFloat) : x; };
  a.grad_mean = inputs.add(b.grads.mean.defined() ? b.grads.mean.to(in.value.scalar_type()) : at::Tensor());
  a.grad_free_energy = inputs.add(in.beta ? as_float(b.grads.free_energy) : at::Tensor());
  a.grad_log_normalizer = inputs.add(as_float(b.grads.log_normalizer));
  const at::Tensor states = b.out.checkpoints.contiguous();
  inputs.fill(a, in, segments, states);
  const bool low = in.value.scalar_type() == at::kBFloat16;
  const auto to = [](const OptionalTensor& x) { return x ? x->data_ptr() : nullptr; };
  a.grad_value = {d.value.data_ptr(), low};
  a.grad_log_weight = {to(d.log_weight), low};
  a.grad_log_decay = {to(d.log_decay), low};
  a.grad_initial = static_cast<float*>(to(d.initial));
  const at::Tensor dbeta =
      in.beta ? at::empty({a.segment_count, in.value.size(2), in.value.size(3)}, exact) : at::Tensor();
  a.grad_beta = in.beta ? dbeta.data_ptr<float>() : nullptr;

  // The scale of a state is a choice of units: its gradient says nothing that those of the sums do not.
  at::Tensor arriving = b.grads.state.defined() ? as_float(b.grads.state).contiguous() : at::Tensor();
  if (divided(segments)) {
    const at::Tensor last = arriving;
    arriving = at::zeros({a.segment_count, a.streams(), in.value.size(2), in.value.size(3)}, exact);
    for (int64_t s = 0; last.defined() && s < a.segment_count; ++s)
      if (segments[s].last) arriving[s].copy_(last[segments[s].sequence].slice(0, 1));
    const at::Tensor summaries = at::empty({a.segment_count, kSummaryBackward, a.channels()}, exact);
    for_items(a, 0, [&, run = summarise_backward()](int64_t begin, int64_t end, float*) {
      run(a, begin, end, summaries.data_ptr<float>());
    });
    connect_backward(a, summaries.const_data_ptr<float>(), arriving.data_ptr<float>());
    a.arriving = arriving.const_data_ptr<float>();
    a.arriving_row = a.streams() * a.channels();
  } else if (arriving.defined()) {  // segments are sequences
    a.arriving = arriving.const_data_ptr<float>() + a.channels();
    a.arriving_row = (1 + a.streams()) * a.channels();
  }
  for_items(a, kReturningFloats,
            [&, run = backward()](int64_t begin, int64_t end, float* scratch) { run(a, begin, end, scratch); });
  if (in.beta) d.beta = dbeta.sum(0);
  return d;
}

}  // namespace fem
