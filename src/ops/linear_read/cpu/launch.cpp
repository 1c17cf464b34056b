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
struct Inputs {
  at::Tensor query, key, value, beta, log_decay, key_mask, initial;

  Inputs(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& beta,
         const OptionalTensor& log_decay, const OptionalTensor& key_mask, const OptionalTensor& initial)
      : query(unit_stride(query)),
        key(unit_stride(key)),
        value(unit_stride(value)),
        beta(beta ? beta->to(at::kFloat).contiguous() : at::Tensor()),
        log_decay(log_decay.value_or(at::Tensor())),
        key_mask(key_mask ? key_mask->contiguous() : at::Tensor()),
        initial(initial ? initial->contiguous() : at::Tensor()) {}

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

Tensors5 linear_read_cpu(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const OptionalTensor& beta, const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                         const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict) {
  const Inputs in(query, key, value, beta, log_decay, key_mask, initial);
  const std::vector<Sequence> sequences = sequences_of(value.size(0), value.size(1), cu_seqlens, "linear_read");
  const auto float_options = value.options().dtype(at::kFloat);
  const at::Tensor mean = at::empty(value.sizes(), value.options());
  const at::Tensor free_energy = beta ? at::empty(value.sizes(), float_options) : at::empty({0}, float_options);
  const at::Tensor log_normalizer = at::empty({value.size(0), value.size(1), value.size(2)}, float_options);
  const at::Tensor state = at::empty({static_cast<int64_t>(sequences.size()), value.size(2), key.size(3),
                                      linear_state_width(value, beta).expect_int()},
                                     float_options);
  // Zeros: room that no sequence needs must not differ from call to call.
  const at::Tensor checkpoints = empty_linear_checkpoints(query, value, beta).zero_();

  Forward a{};
  in.fill(a, strict, checkpoints);
  a.initial = data_of(in.initial);
  a.mean = mean.data_ptr();
  a.free_energy = beta ? free_energy.data_ptr<float>() : nullptr;
  a.log_normalizer = log_normalizer.data_ptr<float>();
  a.state = state.data_ptr<float>();
  if (state.numel() == 0) return {mean, free_energy, log_normalizer, state, checkpoints};

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
  const at::Tensor largest = at::empty({count, a.heads}, float_options);
  work.run(a.heads, forward_scratch()(a), [&](int64_t, int64_t i, Heads heads, float* scratch) {
    const Segment& segment = work.segments[i];
    const float* start = work.slots[i] >= 0 && !segment.first ? starts.at(work.slots[i]) : nullptr;
    const float most = is_short(segment, a) ? step()(a, segment, heads) : forward()(a, segment, heads, start, scratch);
    std::fill_n(largest.data_ptr<float>() + i * a.heads + heads.begin, heads.end - heads.begin, most);
  });
  check_exponents(largest, "linear_read");
  return {mean, free_energy, log_normalizer, state, checkpoints};
}

Tensors6 linear_read_backward_cpu(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                  const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                  const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const OptionalTensor& beta, const OptionalTensor& log_decay,
                                  const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                  const OptionalTensor& initial, bool strict, const at::Tensor& mean,
                                  const at::Tensor& free_energy, const at::Tensor& log_normalizer,
                                  const at::Tensor& checkpoints) {
  const Inputs in(query, key, value, beta, log_decay, key_mask, initial);
  const std::vector<Sequence> sequences = sequences_of(value.size(0), value.size(1), cu_seqlens, "linear_read");
  const auto rows = [](const OptionalTensor& x, at::ScalarType dtype) {
    return x ? unit_stride(x->to(dtype)) : at::Tensor();
  };
  const auto exact = [](const OptionalTensor& x) { return x ? x->to(at::kFloat) : at::Tensor(); };
  const at::Tensor dmean = rows(grad_mean, value.scalar_type());
  const at::Tensor dfree = beta ? rows(grad_free_energy, at::kFloat) : at::Tensor();
  const at::Tensor dlog = exact(grad_log_normalizer),
                   dstate = grad_state ? exact(grad_state).contiguous() : at::Tensor();
  const at::Tensor means = unit_stride(mean), energies = beta ? unit_stride(free_energy) : at::Tensor();
  const at::Tensor states = checkpoints.contiguous();
  const auto output = [&](const at::Tensor& x) {
    return x.defined() ? at::empty(x.sizes(), x.options()) : at::empty({0}, value.options());
  };
  const at::Tensor grad_query = output(query), grad_key = output(key), grad_value = output(value);
  const at::Tensor grad_log_decay = output(in.log_decay), grad_initial = output(in.initial);

  Backward a{};
  in.fill(a, strict, states);
  a.initial = data_of(in.initial);
  a.mean = rows_of(means);
  a.free_energy = rows_of(energies);
  a.log_normalizer = rows_of(log_normalizer);
  a.grad_mean = rows_of(dmean);
  a.grad_free_energy = rows_of(dfree);
  a.grad_log_normalizer = rows_of(dlog);
  a.grad_state = data_of(dstate);
  a.grad_query = grad_query.data_ptr();
  a.grad_key = grad_key.data_ptr();
  a.grad_value = grad_value.data_ptr();
  a.grad_log_decay = log_decay ? grad_log_decay.data_ptr() : nullptr;
  a.grad_initial = initial ? grad_initial.data_ptr<float>() : nullptr;

  const at::Tensor grad_beta = at::zeros({at::get_num_threads(), a.heads, beta ? a.value_width : 0}, at::kDouble);
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
      backward()(a, work.segments[i], heads, end, grad_beta.data_ptr<double>() + part * grad_beta.stride(0), scratch);
    });
  }
  return {grad_query,     grad_key,
          grad_value,     beta ? grad_beta.sum(0).to(beta->scalar_type()) : at::empty({0}, value.options()),
          grad_log_decay, grad_initial};
}

}  // namespace fem
