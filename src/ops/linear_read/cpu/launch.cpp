// From tensors to the linear_read kernels: views, memory and the division of work among threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "cpu/partition.h"
#include "ops/exponents.h"
#include "ops/linear_read/cpu/kernels.h"
#include "ops/linear_read/linear_read.h"
#include "ops/sequences.h"
#include "ops/strides.h"

namespace fem {
namespace {

using namespace linear_kernels;

Rows rows_of(const at::Tensor& x) {
  return x.defined() ? Rows{x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2)} : Rows{};
}

template <typename Number = float>
const Number* data_of(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<Number>() : nullptr;
}

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
struct KernelInputs {
  at::Tensor query, key, value, beta, log_decay, key_mask, initial;

  explicit KernelInputs(const LinearScanOp::Inputs& in)
      : query(unit_stride(in.query)),
        key(unit_stride(in.key)),
        value(unit_stride(in.value)),
        beta(in.beta ? in.beta->to(at::kFloat).contiguous() : at::Tensor()),
        log_decay(or_undefined(in.log_decay)),
        key_mask(in.key_mask ? in.key_mask->contiguous() : at::Tensor()),
        initial(in.initial ? in.initial->contiguous() : at::Tensor()) {}

  void fill(Arguments& a, bool strict, const at::Tensor& checkpoints) const {
    a.bfloat16 = value.scalar_type() == at::kBFloat16;
    a.strict = strict;
    a.heads = value.size(2);
    a.tokens = value.size(1);
    a.key_width = key.size(3);
    a.value_width = value.size(3);
    a.query = rows_of(query);
    a.key = rows_of(key);
    a.value = rows_of(value);
    a.log_decay = rows_of(log_decay);
    a.beta = data_of(beta);
    a.key_mask = data_of<bool>(key_mask);
    a.checkpoints = const_cast<float*>(checkpoints.const_data_ptr<float>());
    a.group_tokens = kLinearCheckpointTokens;
  }
};

// The work: segments of sequences times heads. A sequence that is more than a thread's share is cut into parts at
// checkpoints; its parts' states (or their gradients) at the borders are in consecutive slots.
struct Work {
  std::vector<Segment> segments;
  std::vector<int64_t> slots;  // of a cut sequence's segments, else -1
  int64_t slot_count = 0;

  Work(const std::vector<Sequence>& sequences, int64_t heads) {
    int64_t tokens = 0;
    for (const Sequence& s : sequences) tokens += s.end - s.begin;
    for (size_t n = 0; n < sequences.size(); ++n) {
      const auto [batch, begin, end] = sequences[n];
      const int64_t parts = tokens ? (end - begin) * at::get_num_threads() / (tokens * heads) : 1;
      std::vector<int64_t> borders{begin};
      for (int64_t part = 1; part < parts; ++part) {
        const int64_t at = begin + (end - begin) * part / parts;
        const int64_t border = (at + kLinearCheckpointTokens / 2) / kLinearCheckpointTokens * kLinearCheckpointTokens;
        if (border > borders.back() && border < end) borders.push_back(border);
      }
      borders.push_back(end);
      const bool cut = borders.size() > 2;
      for (size_t i = 0; i + 1 < borders.size(); ++i) {
        segments.push_back(
            {static_cast<int64_t>(n), batch, borders[i], borders[i + 1], i == 0, i + 2 == borders.size()});
        slots.push_back(cut ? slot_count++ : -1);
      }
    }
  }

  bool in_the_middle(int64_t i) const { return slots[i] >= 0 && !segments[i].first && !segments[i].last; }

  // Calls body(part, segment, heads, scratch) for all, runs of equal cost for the threads: what one does depends on the
  // number of threads only.
  template <typename Body>
  void run(int64_t heads, int64_t scratch_floats, Body&& body) const {
    const int64_t parts = at::get_num_threads();
    std::vector<double> costs;
    for (const Segment& s : segments) costs.insert(costs.end(), heads, static_cast<double>(s.end - s.begin + 8));
    const auto borders = cpu::equal_cost_borders(costs, 1, parts);
    const at::Tensor scratch = at::empty({parts, scratch_floats}, at::kFloat);
    at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        for (int64_t item = borders[part], next; item < borders[part + 1]; item = next) {
          const int64_t segment = item / heads;
          next = std::min((segment + 1) * heads, borders[part + 1]);
          body(part, segment, Heads{item % heads, next - segment * heads},
               scratch.data_ptr<float>() + part * scratch_floats);
        }
    });
  }
};

// One state a head in the kernels' layout for every slot.
struct Slots {
  at::Tensor memory;

  Slots(const Work& work, const Arguments& a)
      : memory(at::empty({work.slot_count, a.heads * state_floats()(a)}, at::kFloat)) {}
  float* at(int64_t slot) const { return memory.data_ptr<float>() + slot * memory.stride(0); }
};

// A whole sequence of a few tokens, without a checkpoint inside.
bool is_short(const Segment& s, const Arguments& a) {
  return s.first && s.last && s.end - s.begin <= step_tokens()() && a.value_width <= step_width()() &&
         (s.end - 1) / kLinearCheckpointTokens == s.begin / kLinearCheckpointTokens;
}

}  // namespace

void LinearScanOp::kernel(const Inputs& in, Outputs& out) {
  const KernelInputs inputs(in);
  const std::vector<Sequence> sequences =
      sequences_of(in.value.size(0), in.value.size(1), in.cu_seqlens, "linear_read");
  out.checkpoints.zero_();  // room that no sequence needs must not differ from call to call
  if (out.state.numel() == 0) return;
  Forward a{};
  inputs.fill(a, in.strict, out.checkpoints);
  a.initial = data_of(inputs.initial);
  a.mean = out.mean.data_ptr();
  a.free_energy = in.beta ? out.free_energy.data_ptr<float>() : nullptr;
  a.log_normalizer = out.log_normalizer.data_ptr<float>();
  a.state = out.state.data_ptr<float>();

  const Work work(sequences, a.heads);
  const auto count = static_cast<int64_t>(work.segments.size());
  const Slots starts(work, a);
  if (work.slot_count > 0) {
    // What each part but the last adds goes where the next one starts; then the parts are joined in order.
    work.run(a.heads, forward_scratch()(a), [&](int64_t, int64_t i, Heads heads, float* scratch) {
      if (work.slots[i] >= 0 && !work.segments[i].last)
        advance()(a, work.segments[i], heads, starts.at(work.slots[i] + 1), scratch);
    });
    at::parallel_for(0, a.heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count; ++i)
        if (work.in_the_middle(i))
          join()(a, work.segments[i], {begin, end}, starts.at(work.slots[i] + 1), starts.at(work.slots[i]));
    });
  }
  const at::Tensor largest = at::empty({count, a.heads}, at::kFloat);
  work.run(a.heads, forward_scratch()(a), [&](int64_t, int64_t i, Heads heads, float* scratch) {
    const Segment& segment = work.segments[i];
    const float* start = work.slots[i] >= 0 && !segment.first ? starts.at(work.slots[i]) : nullptr;
    const float most = is_short(segment, a) ? step()(a, segment, heads) : forward()(a, segment, heads, start, scratch);
    std::fill_n(largest.data_ptr<float>() + i * a.heads + heads.begin, heads.end - heads.begin, most);
  });
  check_exponents(largest, "linear_read");
}

LinearScanOp::Inputs LinearScanOp::gradient_kernel(const BackwardOf<LinearScanOp>& b) {
  const Inputs& in = b.in;
  const KernelInputs inputs(in);
  const std::vector<Sequence> sequences =
      sequences_of(in.value.size(0), in.value.size(1), in.cu_seqlens, "linear_read");
  const auto rows = [](const at::Tensor& x, at::ScalarType dtype) {
    return x.defined() ? unit_stride(x.to(dtype)) : x;
  };
  const at::Tensor dmean = rows(b.grads.mean, in.value.scalar_type());
  const at::Tensor dfree = in.beta ? rows(b.grads.free_energy, at::kFloat) : at::Tensor();
  const at::Tensor dlog = b.grads.log_normalizer.defined() ? b.grads.log_normalizer.to(at::kFloat) : at::Tensor();
  const at::Tensor dstate = b.grads.state.defined() ? b.grads.state.to(at::kFloat).contiguous() : at::Tensor();
  const at::Tensor mean = unit_stride(b.out.mean), states = b.out.checkpoints.contiguous();
  const at::Tensor free_energy = in.beta ? unit_stride(b.out.free_energy) : at::Tensor();
  const auto like = [](const at::Tensor& x) { return x.defined() ? at::empty(x.sizes(), x.options()) : x; };
  const at::Tensor dquery = like(in.query), dkey = like(in.key), dvalue = like(in.value);
  const at::Tensor dlog_decay = like(inputs.log_decay), dinitial = like(inputs.initial);

  Backward a{};
  inputs.fill(a, in.strict, states);
  a.initial = data_of(inputs.initial);
  a.mean = rows_of(mean);
  a.free_energy = rows_of(free_energy);
  a.log_normalizer = rows_of(b.out.log_normalizer);
  a.grad_mean = rows_of(dmean);
  a.grad_free_energy = rows_of(dfree);
  a.grad_log_normalizer = rows_of(dlog);
  a.grad_state = data_of(dstate);
  a.grad_query = dquery.data_ptr();
  a.grad_key = dkey.data_ptr();
  a.grad_value = dvalue.data_ptr();
  a.grad_log_decay = dlog_decay.defined() ? dlog_decay.data_ptr() : nullptr;
  a.grad_initial = dinitial.defined() ? dinitial.data_ptr<float>() : nullptr;

  const at::Tensor dbeta = at::zeros({at::get_num_threads(), a.heads, in.beta ? a.value_width : 0}, at::kDouble);
  if (!sequences.empty() && a.heads > 0) {
    const Work work(sequences, a.heads);
    const Slots ends(work, a);
    if (work.slot_count > 0) {
      // As in forward, from the end.
      work.run(a.heads, backward_scratch()(a), [&](int64_t, int64_t i, Heads heads, float* scratch) {
        if (work.slots[i] >= 0 && !work.segments[i].first)
          retreat()(a, work.segments[i], heads, ends.at(work.slots[i] - 1), scratch);
      });
      at::parallel_for(0, a.heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = static_cast<int64_t>(work.segments.size()) - 1; i >= 0; --i)
          if (work.in_the_middle(i))
            join()(a, work.segments[i], {begin, end}, ends.at(work.slots[i] - 1), ends.at(work.slots[i]));
      });
    }
    work.run(a.heads, backward_scratch()(a), [&](int64_t part, int64_t i, Heads heads, float* scratch) {
      const float* end = work.slots[i] >= 0 && !work.segments[i].last ? ends.at(work.slots[i]) : nullptr;
      backward()(a, work.segments[i], heads, end, dbeta.data_ptr<double>() + part * dbeta.stride(0), scratch);
    });
  }
  return {dquery, dkey, dvalue, dbeta.sum(0), if_defined(dlog_decay), if_defined(dinitial), {}, {}, false};
}

}  // namespace fem
