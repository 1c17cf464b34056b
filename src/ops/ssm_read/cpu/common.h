// One token of one vector of channels, as forward and backward both need it.
#pragma once

#include "cpu/free_energy.h"
#include "ops/ssm_read/cpu/kernels.h"

namespace fem::ssm_kernels {
namespace {

using namespace fem::cpu;

// A vector of channels; the last one of the row may have fewer than kLanes.
struct Lanes {
  int64_t first, count;
};

template <typename Body>
inline void for_lanes(const Arguments& a, Groups groups, Body&& body) {
  const int64_t end = groups.end * kChannels < a.channels ? groups.end * kChannels : a.channels;
  for (int64_t c = groups.begin * kChannels; c < end; c += kLanes) body(Lanes{c, end - c < kLanes ? end - c : kLanes});
}

inline Floats load_row(const Rows& x, bool bfloat16, int64_t batch, int64_t t, Lanes lanes) {
  const int64_t at = batch * x.batch + t * x.token + lanes.first;
  const auto get = [&](const auto* p) {
    return lanes.count == kLanes ? load(p + at) : load_first(p + at, lanes.count);
  };
  return bfloat16 ? get(static_cast<const Bfloat16*>(x.data)) : get(static_cast<const float*>(x.data));
}

template <typename Scalar>
inline void store_lanes(Scalar* p, Floats x, Lanes lanes) {
  lanes.count == kLanes ? store(p + lanes.first, x) : store_first(p + lanes.first, x, lanes.count);
}
// To row (batch, t) of a contiguous [B, T, channels].
inline void store_row(const Arguments& a, void* data, int64_t batch, int64_t t, Lanes lanes, Floats x) {
  const int64_t row = (batch * a.tokens + t) * a.channels;
  a.bfloat16 ? store_lanes(static_cast<Bfloat16*>(data) + row, x, lanes)
             : store_lanes(static_cast<float*>(data) + row, x, lanes);
}

inline bool is_real(const Arguments& a, int64_t batch, int64_t t) {
  return !a.key_mask || a.key_mask[batch * a.tokens + t];
}

// B and C of a chunk as float32 [token][2][R], masked tokens with B = 0: every vector of channels reads them.
inline void gather_rows(const Arguments& a, const Tokens& chunk, float* to) {
  const auto copy = [&](const Rows& x, int64_t t, float* row) {
    const int64_t at = chunk.batch * x.batch + t * x.token;
    const auto all = [&](const auto* p) {
      for_vectors(a.rank, [&](int64_t r, auto&& get, auto&& put) { put(row + r, get(p + at + r)); });
    };
    a.bfloat16 ? all(static_cast<const Bfloat16*>(x.data)) : all(static_cast<const float*>(x.data));
  };
  for (int64_t t = chunk.begin; t < chunk.end; ++t, to += 2 * a.rank) {
    if (is_real(a, chunk.batch, t))
      copy(a.B, t, to);
    else
      for (int64_t r = 0; r < a.rank; ++r) to[r] = 0;
    copy(a.C, t, to + a.rank);
  }
}

inline int64_t streams_of(const Arguments& a) { return a.beta ? 3 : 2; }
inline int64_t state_size(const Arguments& a) { return streams_of(a) * a.rank * a.line; }

// A state in memory [streams, R, line] and that of one vector of channels, [R, streams] vectors.
inline void load_state(const Arguments& a, const float* from, Lanes lanes, float* to) {
  const int64_t streams = streams_of(a);
  for (int64_t r = 0; r < a.rank; ++r)
    for (int64_t s = 0; s < streams; ++s, to += kLanes)
      store(to, from ? load(from + (s * a.rank + r) * a.line + lanes.first) : Floats{});
}
inline void store_state(const Arguments& a, const float* from, Lanes lanes, float* to) {
  const int64_t streams = streams_of(a);
  for (int64_t r = 0; r < a.rank; ++r)
    for (int64_t s = 0; s < streams; ++s, from += kLanes)
      store(to + (s * a.rank + r) * a.line + lanes.first, load(from));
}
inline float* checkpoint(const Arguments& a, const Segment& segment, int64_t chunk) {
  return a.checkpoints + (segment.checkpoint + chunk) * state_size(a);
}

inline void load_rates(const Arguments& a, Lanes lanes, float* to) {
  for (int64_t r = 0; r < a.rank; ++r) store(to + r * kLanes, load(a.A + r * a.line + lanes.first));
}

inline Floats where(Ints mask, Floats x) { return reinterpret_cast<Floats>(mask & reinterpret_cast<Ints>(x)); }

// Multiplication by e^x. Near 0, where memories are long, as h + (e^x - 1) h in one rounding: e^x itself, rounded,
// would repeat its error every token and lose half the digits over ten thousand (vec.h, decayed). One polynomial for
// both.
struct Decay {
  Floats factor;  // e^x - 1 near 0, else e^x
  Ints near;

  Floats operator()(Floats h) const { return factor * h + where(near, h); }
};

// Inside the interval around 0 in which the exponential needs no power of two; a comparison of x alone, so that
// backward can repeat it.
inline Ints is_near(Floats x) { return abs(x) < 0.34f; }

inline Decay decay_of(Floats x) {
  const auto [power, rest] = split_exp(x);
  const Floats minus_one = exp_minus_one(rest);
  const Ints near = is_near(x);
  return {select(near, minus_one, power * minus_one + power), near};
}

// What a token feeds into the state: 1, v and exp(beta v), all 0 if it is masked.
struct Token {
  Floats delta, input[3], exponent;
};

inline Token load_token(const Arguments& a, int64_t batch, int64_t t, Lanes lanes) {
  const Floats none{};
  if (!is_real(a, batch, t)) return {none, {none, none, none}, none};
  const Floats delta = load_row(a.delta, a.bfloat16, batch, t, lanes);
  const Floats value = load_row(a.value, a.bfloat16, batch, t, lanes);
  const Floats exponent = a.beta ? load(a.beta + lanes.first) * value : none;
  return {delta, {splat(1.0f), value, a.beta ? exp(exponent) : none}, exponent};
}

// One vector per stream: 1, v, exp(beta v).
struct Streams {
  Floats of[3];
};

// h <- exp(delta A) h + delta B u; returns C.h of every stream, h as kReads says. The new h is what
// next(r, s, decay, h, delta B u) makes of it. The decays' factors go ahead, into memory: the processor can overlap
// these exponentials, but not each with the long chain of its own update.
template <int kStreams, Reads kReads, typename Next>
inline Streams step(const Token x, int64_t rank, const float* rates, const float* B, const float* C, float* factors,
                    const float* from, float* to, Next next) {
  for (int64_t r = 0; r < rank; ++r) store(factors + r * kLanes, decay_of(x.delta * load(rates + r * kLanes)).factor);
  Floats read[3];
  read[0] = read[1] = read[2] = Floats{};
  for (int64_t r = 0; r < rank; ++r) {
    const Decay decay{load(factors + r * kLanes), is_near(x.delta * load(rates + r * kLanes))};
    const Floats gain = x.delta * B[r], weight = splat(C[r]);
#pragma GCC unroll 3
    for (int s = 0; s < kStreams; ++s) {
      const int64_t at = (r * kStreams + s) * kLanes;
      const Floats h = load(from + at), moved = next(r, s, decay, h, gain * x.input[s]);
      read[s] += weight * (kReads == Reads::kAfter ? moved : kReads == Reads::kDecayed ? decay(h) : h);
      store(to + at, moved);
    }
  }
  return {{read[0], read[1], read[2]}};
}

// The sums S u of a token. What is fainter than float32 can divide by counts as nothing (README.md, "Range").
template <int kStreams>
inline Sums sums_of(const Streams& read, const Token& x, Floats D) {
  const auto sum = [&](int s) { return D * x.input[s] + read.of[s]; };
  const Floats one = sum(0), energy = kStreams == 3 ? sum(2) : Floats{};
  return {select(one < 1e-30f, Floats{}, one), sum(1), select(energy < 1e-33f, splat(1e-33f), energy)};
}

// Calls body with the number of streams and what is read as constants.
template <auto kValue>
struct Constant {
  static constexpr auto value = kValue;
};
template <typename Body>
inline void specialised(const Arguments& a, Body&& body) {
  const auto with_streams = [&](auto reads) { a.beta ? body(Constant<3>{}, reads) : body(Constant<2>{}, reads); };
  switch (a.reads) {
    case Reads::kAfter:
      return with_streams(Constant<Reads::kAfter>{});
    case Reads::kDecayed:
      return with_streams(Constant<Reads::kDecayed>{});
    case Reads::kBefore:
      return with_streams(Constant<Reads::kBefore>{});
  }
}

// Hands out parts of a scratch memory; with no memory it only counts.
struct Scratch {
  float* memory;
  int64_t taken = 0;

  float* next(int64_t count) {
    taken += (count + kChannels - 1) / kChannels * kChannels;
    return memory ? memory + taken - (count + kChannels - 1) / kChannels * kChannels : nullptr;
  }
};

}  // namespace
}  // namespace fem::ssm_kernels
