// The recurrence over a chunk of tokens, for forward and backward alike: with weights e^k and decays e^g,
//   m_t = max(m_{t-1} + g_t, k_t)     S_t = e^{m_{t-1} + g_t - m_t} S_{t-1} + e^{k_t - m_t} [1, v_t, e^{beta v_t}]
#pragma once

#include <type_traits>

#include "cpu/free_energy.h"
#include "ops/channel_read/cpu/columns.h"

namespace fem::channel_kernels {
namespace {

// The scale m of empty sums. Finite, so that no difference of scales is NaN; nothing is below it.
constexpr float kEmpty = -std::numeric_limits<float>::max();

// Factors are kept as 2^24 e^x, which reaches down to e^-104: what is less is below float32's precision even where its
// e^{beta v} is e^80 larger than the others'.
constexpr int kBias = 24;
constexpr float kBiased = 1 << kBias, kUnbiased = 1 / kBiased;

// 2^24 e^x = high + low with high a power of two: of a factor near 1 no digit of its distance from 1 is lost.
struct Factor {
  Floats high, low;

  Floats total() const { return high + low; }
};
constexpr Factor kOne{kBiased - Floats{}, Floats{}};

inline Factor factor(Floats x) {
  const auto [power, rest] = split_exp<kBias>(x);
  return {power, exp_minus_one(rest) * power};
}
inline Factor select(Ints mask, const Factor& yes, const Factor& no) {
  return {cpu::select(mask, yes.high, no.high), cpu::select(mask, yes.low, no.low)};
}

// A running sum and what rounding has taken from it: a hundred thousand terms lose no more than one.
struct Sum {
  Floats high, low;

  // keep * sum + term
  void advance(const Factor& keep, Floats term) {
    const Floats unbiased = high * kUnbiased, kept = keep.high * unbiased;
    const Floats more = keep.low * unbiased + (keep.total() * kUnbiased * low + term);
    high = kept + more;
    low = more - (high - kept);
  }
  void add(Floats term) {
    const Floats before = high, more = low + term;
    high = before + more;
    low = more - (high - before);
  }
};

// Sums in units of e^scale.
struct State {
  Floats scale;
  Sum one, value, energy;
};
inline State empty_state() { return {splat(kEmpty), Sum{}, Sum{}, Sum{}}; }

// Which of the inputs there are, known to the compiler.
template <bool weights, bool decays, bool beta>
struct Prior {
  static constexpr bool kWeights = weights, kDecays = decays, kBeta = beta;
};

template <typename Body>
void with_prior(const Arguments& a, Body&& body) {
  const auto with_beta = [&](auto weights, auto decays) {
    if (a.beta)
      body(Prior<weights.value, decays.value, true>{});
    else
      body(Prior<weights.value, decays.value, false>{});
  };
  if (!a.with_weights)
    with_beta(std::false_type{}, std::true_type{});
  else if (!a.with_decays)
    with_beta(std::true_type{}, std::false_type{});
  else
    with_beta(std::true_type{}, std::true_type{});
}

// Of a group over a chunk.
struct alignas(64) InputColumns {
  Columns value, log_weight, log_decay;
};

template <typename P>
void gather_inputs(const Arguments& a, const Item& item, Tokens tokens, InputColumns& in) {
  gather(a.value, a.bfloat16, item, tokens, in.value);
  if constexpr (P::kWeights) gather(a.log_weight, a.bfloat16, item, tokens, in.log_weight);
  if constexpr (P::kDecays) gather(a.log_decay, a.bfloat16, item, tokens, in.log_decay);
}

// One vector of channels over a chunk.
struct alignas(64) Chunk {
  int64_t count;     // tokens
  const bool* real;  // of these tokens, or null
  float *value, *log_weight, *log_decay;
  Column keep_high, keep_low;                        // e^{m_{t-1} + g_t - m_t}
  Column one, energy;                                // e^{k_t - m_t} and e^{k_t - m_t + beta v_t}
  LongColumn scale, sum_one, sum_value, sum_energy;  // before each token, and after the last

  void choose(const Arguments& a, Tokens tokens, InputColumns& in, int vector) {
    count = tokens.count();
    real = a.key_mask ? a.key_mask + tokens.batch * a.tokens + tokens.begin : nullptr;
    value = in.value[vector];
    log_weight = in.log_weight[vector];
    log_decay = in.log_decay[vector];
  }
  bool masked(int64_t t) const { return real && !real[t]; }
};

template <typename P>
Floats beta_of(const Arguments& a, const Place& at) {
  return P::kBeta ? load_lanes(a.beta + at.channel, at.lanes) : splat(1.0f);
}

// Runs state through the chunk and leaves all that happens in its columns. Returns the largest |beta v|.
template <typename P>
Floats replay(Chunk& c, Floats beta, State& state) {
  Floats largest{};
  State s = state;
  const auto keep_state = [&](int64_t at) {
    if constexpr (P::kWeights) store(c.scale + at, s.scale);
    store(c.sum_one + at, s.one.high);
    store(c.sum_value + at, s.value.high);
    if constexpr (P::kBeta) store(c.sum_energy + at, s.energy.high);
  };
  for (int64_t t = 0; t < c.count; ++t) {
    const int64_t at = t * kLanes;
    keep_state(at);
    if (c.masked(t)) continue;
    Factor keep;
    Floats weight = splat(kBiased);  // 2^24 e^{k - m}
    if constexpr (P::kWeights) {
      const Floats k = load(c.log_weight + at), decay = P::kDecays ? load(c.log_decay + at) : Floats{};
      const Floats before = s.scale, decayed = before + decay;
      s.scale = max(cpu::select(decayed > k, decayed, k), splat(kEmpty));
      // The difference of scales first: it is exact where the rounding of the new scale would matter.
      const Floats down = (before - s.scale) + decay, up = k - s.scale;
      if constexpr (P::kDecays) {
        keep = factor(down);
        weight = exp<kBias>(up);
      } else {  // one of the two is 0
        const Ints rises = down < up;
        const Factor other = factor(cpu::select(rises, down, up));
        keep = select(rises, other, kOne);
        weight = cpu::select(rises, weight, other.total());
      }
    } else {
      keep = factor(load(c.log_decay + at));
    }
    const Floats v = load(c.value + at), one = weight * kUnbiased;
    store(c.keep_high + at, keep.high);
    store(c.keep_low + at, keep.low);
    store(c.one + at, one);
    s.one.advance(keep, one);
    s.value.advance(keep, one * v);
    if constexpr (P::kBeta) {
      const Floats exponent = beta * v, energy = weight * exp<-kBias>(exponent);
      largest = max(abs(exponent), largest);  // NaN stays out
      store(c.energy + at, energy);
      s.energy.advance(keep, energy);
    }
  }
  keep_state(c.count * kLanes);
  state = s;
  return largest;
}

// The sums that token t reads.
template <typename P>
Sums sums_seen(const Chunk& c, int64_t t, bool strict) {
  const int64_t at = (strict ? t : t + 1) * kLanes;
  Sums s{load(c.sum_one + at), load(c.sum_value + at), P::kBeta ? load(c.sum_energy + at) : splat(1.0f)};
  // What is forgotten at t itself is not seen, though the sums before t still have it.
  if constexpr (P::kDecays)
    if (strict && !c.masked(t)) s.one = cpu::select(load(c.log_decay + t * kLanes) == -kInfinity, Floats{}, s.one);
  return s;
}

// States as they are kept: scale, 1, v, exp(beta v), channels apart; empty sums have the scale -inf.
struct StoredState {
  Floats scale, one, value, energy;

  Ints empty() const { return (scale == -kInfinity) | (one == 0.0f); }
  // Without weights of their own all tokens count in units of 1.
  template <typename P>
  Floats unit() const {
    return P::kWeights ? splat(1.0f) : exp(scale);
  }
};

template <typename P>
StoredState load_stored(const Arguments& a, const float* state, const Place& at) {
  const auto row = [&](int64_t i) { return load_lanes(state + i * a.channels() + at.channel, at.lanes); };
  return {row(0), row(1), row(2), P::kBeta ? row(3) : Floats{}};
}
template <typename P>
void store_stored(const Arguments& a, float* state, const Place& at, const StoredState& s) {
  const auto row = [&](int64_t i, Floats x) { store_lanes(state + i * a.channels() + at.channel, x, at.lanes); };
  row(0, s.scale);
  row(1, s.one);
  row(2, s.value);
  if constexpr (P::kBeta) row(3, s.energy);
}

template <typename P>
State load_state(const Arguments& a, const float* state, const Place& at) {
  if (!state) return empty_state();
  const StoredState s = load_stored<P>(a, state, at);
  const Ints empty = s.empty();
  const auto sum = [&](Floats x) { return Sum{cpu::select(empty, Floats{}, x * s.template unit<P>()), Floats{}}; };
  return {cpu::select(empty, splat(kEmpty), s.scale), sum(s.one), sum(s.value), sum(s.energy)};
}
template <typename P>
void store_state(const Arguments& a, float* state, const Place& at, const State& s) {
  const Floats scale = cpu::select(s.one.high == 0.0f, splat(-kInfinity), P::kWeights ? s.scale : Floats{});
  store_stored<P>(a, state, at, {scale, s.one.high, s.value.high, s.energy.high});
}

inline float* checkpoint(const Arguments& a, const Segment& segment, int64_t chunk) {
  return a.checkpoints + (segment.checkpoint + chunk) * (1 + a.streams()) * a.channels();
}

}  // namespace
}  // namespace fem::channel_kernels
