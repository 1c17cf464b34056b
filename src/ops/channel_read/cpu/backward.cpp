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
struct Adjoint {
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
void adjoint_chunk(Chunk& c, const GradientColumns& d, int vector, Floats beta, bool strict, Adjoint& adjoint) {
  Adjoint r = adjoint;
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
  adjoint = r;
}

inline Adjoint nothing() { return {Sum{}, Sum{}, Sum{}, kOne, Sum{}}; }

template <typename P>
Adjoint adjoint_after(const Backward& a, const float* grad_after, const Place& at) {
  Adjoint r = nothing();
  if (!grad_after) return r;
  const StoredState d = load_stored<P>(a, grad_after, at);
  r.one.high = d.one, r.value.high = d.value, r.energy.high = d.energy;
  return r;
}

// The initial state counts as sums e^scale, so that its scale has the gradient dS.S. That of an empty state is 0.
template <typename P>
void write_grad_initial(const Backward& a, const float* initial, const Place& at, const Adjoint& r, float* to) {
  const StoredState s = load_stored<P>(a, initial, at);
  const auto given = [empty = s.empty()](Floats x) { return cpu::select(empty, Floats{}, x); };
  const Floats unit = s.unit<P>();
  const Floats one = r.one.high * unit, value = r.value.high * unit, energy = r.energy.high * unit;
  const Floats scale = one * s.one + value * s.value + energy * s.energy;
  store_stored<P>(a, to, at, {given(scale), given(one), given(value), given(energy)});
}

struct alignas(64) Scratch {
  InputColumns in;
  GradientColumns gradients;
  Chunk chunk;
};

// Leaves in the columns what happened in a chunk and what comes from its reads, then calls body(vector, beta).
template <typename P, typename Body>
void recompute(const Backward& a, const Item& item, int64_t index, Scratch& s, Body&& body) {
  const Tokens tokens = chunk_of(item.segment, index, kChunk);
  gather_inputs<P>(a, item, tokens, s.in);
  gather(a.grad_mean, a.bfloat16, item, tokens, s.gradients.mean);
  if constexpr (P::kBeta) gather(a.grad_free_energy, false, item, tokens, s.gradients.free_energy);
  gather(a.grad_log_normalizer, false, item, tokens, s.gradients.log_normalizer);
  for (int i = 0; i < item.vectors(); ++i) {
    const Place at = item.place(a, i);
    const Floats beta = beta_of<P>(a, at);
    State state = load_state<P>(a, checkpoint(a, item.segment, index), at);
    s.chunk.choose(a, tokens, s.in, i);
    replay<P>(s.chunk, beta, state);
    body(i, beta);
  }
}

template <typename P>
void segment_backward(const Backward& a, const Segment& segment, Groups groups, const float* initial,
                      const float* grad_after, float* grad_before, float* grad_beta, float* scratch) {
  typedef Adjoint Adjoints[kVectors];
  static_assert(sizeof(Adjoints) == kAdjointFloats * kChannels * sizeof(float));
  auto* adjoints = reinterpret_cast<Adjoints*>(scratch);
  Scratch s;
  for_vectors_of(a, segment, groups,
                 [&](int64_t g, int i, const Place& at) { adjoints[g][i] = adjoint_after<P>(a, grad_after, at); });
  for (int64_t index = chunk_count(segment, kChunk) - 1; index >= 0; --index)
    for (int64_t g = groups.begin; g < groups.end; ++g) {
      const Item item = item_of(a, segment, g);
      const Tokens tokens = chunk_of(segment, index, kChunk);
      recompute<P>(a, item, index, s, [&](int i, Floats beta) {
        adjoint_chunk<P>(s.chunk, s.gradients, i, beta, a.strict, adjoints[g - groups.begin][i]);
      });
      scatter(a, s.in.value, item, tokens, a.grad_value);
      if constexpr (P::kWeights) scatter(a, s.in.log_weight, item, tokens, a.grad_log_weight);
      if constexpr (P::kDecays) scatter(a, s.in.log_decay, item, tokens, a.grad_log_decay);
    }
  for_vectors_of(a, segment, groups, [&](int64_t g, int i, const Place& at) {
    Adjoint& r = adjoints[g][i];
    r.advance(Sums{});
    if (grad_before) write_grad_initial<P>(a, initial, at, r, grad_before);
    if constexpr (P::kBeta) store_lanes(grad_beta + at.channel, r.beta.high, at.lanes);
  });
}

template <typename P>
void retreat_item(const Backward& a, const Item& item, const float* grad_after, float* grad_before, float* factor) {
  Scratch s;
  Adjoint adjoints[kVectors];
  Sum product[kVectors];
  for (int i = 0; i < item.vectors(); ++i) adjoints[i] = adjoint_after<P>(a, grad_after, item.place(a, i));
  for (Sum& p : product) p = {splat(1.0f), Floats{}};
  for (int64_t index = chunk_count(item.segment, kChunk) - 1; index >= 0; --index)
    recompute<P>(a, item, index, s, [&](int i, Floats beta) {
      for (int64_t t = 0; t < s.chunk.count; ++t)
        if (!s.chunk.masked(t))
          product[i].advance({load(s.chunk.keep_high + t * kLanes), load(s.chunk.keep_low + t * kLanes)}, Floats{});
      adjoint_chunk<P>(s.chunk, s.gradients, i, beta, a.strict, adjoints[i]);
    });
  for (int i = 0; i < item.vectors(); ++i) {
    const Place at = item.place(a, i);
    Adjoint& r = adjoints[i];
    r.advance(Sums{});
    store_stored<P>(a, grad_before, at, {Floats{}, r.one.high, r.value.high, r.energy.high});
    store_lanes(factor + at.channel, product[i].high, at.lanes);
  }
}

}  // namespace

namespace FEM_ISA {

void backward(const Backward& a, const Segment& segment, Groups groups, const float* initial, const float* grad_after,
              float* grad_before, float* grad_beta, float* scratch) {
  with_prior(a, [&](auto prior) {
    segment_backward<decltype(prior)>(a, segment, groups, initial, grad_after, grad_before, grad_beta, scratch);
  });
}

void retreat(const Backward& a, const Segment& segment, Groups groups, const float* grad_after, float* grad_before,
             float* factor) {
  with_prior(a, [&](auto prior) {
    for (int64_t g = groups.begin; g < groups.end; ++g)
      retreat_item<decltype(prior)>(a, item_of(a, segment, g), grad_after, grad_before, factor);
  });
}

}  // namespace FEM_ISA
}  // namespace fem::channel_kernels
