// From the last token to the first, with R_t the gradient of S_t and x = [1, v, e^{beta v}]:
//   R_t = dS_t + alpha_{t+1} R_{t+1}    dv = omega (R_v + beta e R_e)    dk = omega R.x    dg = alpha R.S_{t-1}
// where alpha = e^{m_{t-1} + g_t - m_t}, omega = e^{k_t - m_t}. A strict read at t is one of S_{t-1}, later by g_t.
#include "ops/channel_read/cpu/recurrence.h"

namespace fem::channel_kernels {
namespace {

struct alignas(64) GradientColumns {
  Columns mean, free_energy, log_normalizer;
};

// What goes from chunk to chunk, backwards.
struct Returning {
  Sum one, value, energy;  // R of the token after the chunk ...
  Factor keep;             // ... and the alpha it has yet to be multiplied by
  Sum beta;                // gradient of beta so far

  void advance(const Sums& term) {
    one.advance(keep, term.one);
    value.advance(keep, term.value);
    energy.advance(keep, term.energy);
    keep = kOne;
  }
};

// Gradients of the inputs replace them in their columns.
template <typename P>
void retrace(Chunk& c, const GradientColumns& d, int vector, Floats beta, bool strict, Returning& returning) {
  Returning r = returning;
  Floats grad_beta{};
  for (int64_t t = c.count - 1; t >= 0; --t) {
    const int64_t at = t * kLanes;
    const Sums seen = sums_seen<P>(c, t, strict);
    const Floats dmean = load(d.mean[vector] + at), dlog = load(d.log_normalizer[vector] + at);
    const Floats dfree = P::kBeta ? load(d.free_energy[vector] + at) : Floats{};
    const Sums term = gradient_of_sums(seen, beta, dmean, dfree, dlog);
    if constexpr (P::kBeta) grad_beta -= dfree * free_energy_of(seen, beta) / beta;
    if (!strict) r.advance(term);

    Floats of_value{}, of_weight{}, of_decay{};
    if (!c.masked(t)) {
      r.keep = {load(c.keep_high + at), load(c.keep_low + at)};
      const Floats v = load(c.value + at), one = load(c.one + at);
      of_value = one * r.value.high;
      of_weight = one * r.one.high + v * of_value;
      if constexpr (P::kBeta) {
        const Floats of_energy = load(c.energy + at) * r.energy.high;
        of_value += beta * of_energy;
        of_weight += of_energy;
        grad_beta += v * of_energy;
      }
      if constexpr (P::kDecays) {
        const Floats keep = r.keep.total();
        of_decay = keep * kUnbiased * (r.one.high * load(c.sum_one + at) + r.value.high * load(c.sum_value + at));
        // In this order nothing overflows: e^{beta v} may be e^40, and R_e of a later token as large.
        if constexpr (P::kBeta) of_decay += keep * (load(c.sum_energy + at) * kUnbiased) * r.energy.high;
        if (strict) of_decay += unless_empty(seen.one, dlog);
      }
    }
    store(c.value + at, of_value);
    if constexpr (P::kWeights) store(c.log_weight + at, of_weight);
    if constexpr (P::kDecays) store(c.log_decay + at, of_decay);
    if (strict) r.advance(term);
  }
  r.beta.add(grad_beta);
  returning = r;
}

inline Returning nothing() { return {Sum{}, Sum{}, Sum{}, kOne, Sum{}}; }

template <typename P>
Returning arriving(const Backward& a, int64_t segment, const Place& at) {
  Returning r = nothing();
  if (!a.arriving) return r;
  const float* from = a.arriving + segment * a.arriving_row + at.channel;
  r.one.high = load_lanes(from, at.lanes);
  r.value.high = load_lanes(from + a.channels(), at.lanes);
  if constexpr (P::kBeta) r.energy.high = load_lanes(from + 2 * a.channels(), at.lanes);
  return r;
}

// The initial state counts as sums e^scale, so that its scale has the gradient dS.S. That of an empty state is 0.
template <typename P>
void write_grad_initial(const Backward& a, int64_t sequence, const Place& at, const Returning& r) {
  const StoredState s = load_stored<P>(a, a.initial, sequence, at);
  const auto given = [empty = s.empty()](Floats x) { return cpu::select(empty, Floats{}, x); };
  const Floats unit = s.unit<P>();
  const Floats one = r.one.high * unit, value = r.value.high * unit, energy = r.energy.high * unit;
  const Floats scale = one * s.one + value * s.value + energy * s.energy;
  store_stored<P>(a, a.grad_initial, sequence, at, {given(scale), given(one), given(value), given(energy)});
}

struct alignas(64) Scratch {
  InputColumns in;
  GradientColumns gradients;
  Chunk chunk;
};

// Leaves in the columns what happened in a chunk and what comes from its reads, then calls body(vector, beta).
template <typename P, typename Body>
void recall(const Backward& a, const Item& item, int64_t index, Scratch& s, Body&& body) {
  const Tokens tokens = chunk_of(item.segment, index);
  gather_inputs<P>(a, item, tokens, s.in);
  gather(a.grad_mean, item, tokens, s.gradients.mean);
  if constexpr (P::kBeta) gather(a.grad_free_energy, item, tokens, s.gradients.free_energy);
  gather(a.grad_log_normalizer, item, tokens, s.gradients.log_normalizer);
  for (int i = 0; i < item.vectors(); ++i) {
    const Place at = item.place(a, i);
    const Floats beta = beta_of<P>(a, at);
    State state = load_state<P>(a, a.checkpoints, item.segment.checkpoint + index, at);
    s.chunk.choose(a, item, tokens, s.in, i);
    replay<P>(s.chunk, beta, state);
    body(i, beta);
  }
}

template <typename P>
void backward_items(const Backward& a, int64_t begin, int64_t end, float* scratch) {
  typedef Returning Returnings[kVectors];
  static_assert(sizeof(Returnings) == kReturningFloats * kChannels * sizeof(float));
  auto* returning = reinterpret_cast<Returnings*>(scratch);
  Scratch s;
  for_shares(a, begin, end, [&](const Share& share) {
    const Segment& segment = a.segments[share.segment];
    for (int64_t g = 0; g < share.groups(); ++g) {
      const Item item = share.item(a, g);
      for (int i = 0; i < item.vectors(); ++i) returning[g][i] = arriving<P>(a, share.segment, item.place(a, i));
    }
    for (int64_t index = chunks_of(segment) - 1; index >= 0; --index)
      for (int64_t g = 0; g < share.groups(); ++g) {
        const Item item = share.item(a, g);
        const Tokens tokens = chunk_of(segment, index);
        recall<P>(a, item, index, s,
                  [&](int i, Floats beta) { retrace<P>(s.chunk, s.gradients, i, beta, a.strict, returning[g][i]); });
        scatter(a, s.in.value, item, tokens, a.grad_value);
        if constexpr (P::kWeights) scatter(a, s.in.log_weight, item, tokens, a.grad_log_weight);
        if constexpr (P::kDecays) scatter(a, s.in.log_decay, item, tokens, a.grad_log_decay);
      }
    for (int64_t g = 0; g < share.groups(); ++g) {
      const Item item = share.item(a, g);
      for (int i = 0; i < item.vectors(); ++i) {
        const Place at = item.place(a, i);
        Returning& r = returning[g][i];
        r.advance(Sums{});
        if (segment.first && a.grad_initial) write_grad_initial<P>(a, segment.sequence, at, r);
        if constexpr (P::kBeta)
          store_lanes(a.grad_beta + share.segment * a.channels() + at.channel, r.beta.high, at.lanes);
      }
    }
  });
}

template <typename P>
void summarise_item(const Backward& a, const Item& item, float* summaries) {
  Scratch s;
  Returning returning[kVectors];
  Sum product[kVectors];
  for (Returning& r : returning) r = nothing();
  for (Sum& p : product) p = {splat(1.0f), Floats{}};
  for (int64_t index = chunks_of(item.segment) - 1; index >= 0; --index)
    recall<P>(a, item, index, s, [&](int i, Floats beta) {
      for (int64_t t = 0; t < s.chunk.count; ++t)
        if (!s.chunk.masked(t))
          product[i].advance({load(s.chunk.keep_high + t * kLanes), load(s.chunk.keep_low + t * kLanes)}, Floats{});
      retrace<P>(s.chunk, s.gradients, i, beta, a.strict, returning[i]);
    });
  for (int i = 0; i < item.vectors(); ++i) {
    const Place at = item.place(a, i);
    Returning& r = returning[i];
    r.advance(Sums{});
    const Floats all[kSummaryBackward] = {product[i].high, r.one.high, r.value.high, r.energy.high};
    float* to = summaries + item.segment_index * kSummaryBackward * a.channels() + at.channel;
    for (int part = 0; part < kSummaryBackward; ++part) store_lanes(to + part * a.channels(), all[part], at.lanes);
  }
}

}  // namespace

namespace FEM_ISA {

void backward(const Backward& a, int64_t begin, int64_t end, float* scratch) {
  with_prior(a, [&](auto prior) { backward_items<decltype(prior)>(a, begin, end, scratch); });
}

void summarise_backward(const Backward& a, int64_t begin, int64_t end, float* summaries) {
  with_prior(a, [&](auto prior) {
    for (int64_t i = begin; i < end; ++i)
      summarise_item<decltype(prior)>(a, item_of(a, i % a.segment_count, i / a.segment_count), summaries);
  });
}

}  // namespace FEM_ISA
}  // namespace fem::channel_kernels
