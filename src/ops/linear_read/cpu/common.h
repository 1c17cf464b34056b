// Shared by the linear_read kernels.
#pragma once

#include "cpu/pack.h"
#include "ops/linear_read/cpu/kernels.h"

namespace fem::linear_kernels {
namespace {

using namespace fem::cpu;

constexpr int64_t kChunk = 64;  // tokens that see each other directly; all else goes through the state
// An odd number of cache lines, so that a column spreads over all sets of the first-level cache.
constexpr int64_t odd_lines(int64_t width) { return ((width + 15) / 16 | 1) * 16; }
constexpr int64_t kWeightRow = odd_lines(kChunk);
static_assert(kChunk % kPanel == 0 && round_up(kChunk + kTileRows, kLanes) <= kWeightRow);

// The next count floats of scratch memory; with at = null only counts them.
inline float* next_of(float* at, int64_t& taken, int64_t count) {
  taken += round_up(count, 16);
  return at ? at + taken - round_up(count, 16) : nullptr;
}

inline float to_float(float x) { return x; }
inline float to_float(Bfloat16 x) { return load_first(&x, 1)[0]; }

inline Ints lane_index() {
  Ints index;
  for (int l = 0; l < kLanes; ++l) index[l] = l;
  return index;
}

// What is mixed: [v, exp(beta v)], or v alone without beta, each part from a whole vector on. The column of ones is
// kept apart: its sums are vectors, and the panels stay full.
inline int64_t part_width(const Arguments& a) { return round_up(a.value_width, kLanes); }
inline int64_t mixed_width(const Arguments& a) { return a.beta ? 2 * part_width(a) : part_width(a); }
inline int64_t row_state_width(const Arguments& a) { return a.value_width * (a.beta ? 2 : 1) + 1; }

// Tokens [begin, begin + count) of a row of the batch, all in one head.
struct Chunk {
  int64_t batch, head, begin, count;
  bool real(const Arguments& a, int64_t n) const { return !a.key_mask || a.key_mask[batch * a.tokens + begin + n]; }
  int64_t place(const Arguments& a, int64_t n) const { return (batch * a.tokens + begin + n) * a.heads + head; }
};

inline int64_t scalar_bytes(const Arguments& a) { return a.bfloat16 ? sizeof(Bfloat16) : sizeof(float); }

// Asks for a share of the rows of a chunk, elements of size bytes, to be brought near. They lie far apart, one a token:
// no prefetcher of the processor follows them, so the kernels ask for the next chunk while they multiply. Inlined by
// force: as a function without a visible effect it would be dropped.
__attribute__((always_inline)) inline void prefetch(const Rows& rows, int64_t size, int64_t width, const Chunk& c,
                                                    int64_t share, int64_t shares) {
  if (!rows.data) return;
  for (int64_t n = c.count * share / shares; n < c.count * (share + 1) / shares; ++n) {
    const char* at = static_cast<const char*>(rows.data) +
                     (c.batch * rows.batch + (c.begin + n) * rows.token + c.head * rows.head) * size;
    for (int64_t byte = 0; byte < width * size; byte += 64) __builtin_prefetch(at + byte, 0, 2);
  }
}

// From one chunk of tokens [begin, end) to the next, and back from the last.
inline int64_t chunk_end(int64_t begin, int64_t end) { return lesser(end, begin + kChunk); }
inline int64_t chunk_begin(int64_t end, int64_t begin) { return begin + (end - 1 - begin) / kChunk * kChunk; }

// A state in the kernels' layout: panels [mixed / kPanel][K][kPanel], and the sums of the column of ones.
struct State {
  float *mixed, *one;
  State(const Arguments& a, float* at) : mixed(at), one(at + padded(mixed_width(a)) * a.key_width) {}
  static int64_t floats(const Arguments& a) { return (padded(mixed_width(a)) + 1) * a.key_width; }
};

// Heads that are worked on side by side, chunk by chunk: their rows lie beside each other, so that a page of memory is
// visited once and not once a head. As many as have their states in a part of the second-level cache.
inline int64_t heads_at_once(const Arguments& a) {
  const int64_t fit = (1 << 16) / State::floats(a);
  return fit < 1 ? 1 : lesser(fit, a.heads);
}

// One head's of states [H, K, X], or null.
template <typename Number>
inline Number* of_head(const Arguments& a, Number* states, int64_t head) {
  return states ? states + head * a.key_width * row_state_width(a) : nullptr;
}

// The checkpoint before a token of the segment, which is on their grid.
inline float* checkpoint(const Arguments& a, const Segment& segment, int64_t token, int64_t head) {
  const int64_t index = segment.checkpoint + (token - segment.begin) / a.group_tokens;
  return of_head(a, a.checkpoints, index * a.heads + head);
}

// Calls body(column of a row state, column of panels) for the parts v and exp(beta v).
template <typename Body>
inline void for_parts(const Arguments& a, Body&& body) {
  body(0, 0);
  if (a.beta) body(a.value_width, part_width(a));
}

// Row-major [K, X] <-> the kernels' layout; from = null is the empty state.
inline void load_state(const Arguments& a, const State& to, const float* from) {
  std::memset(to.mixed, 0, State::floats(a) * sizeof(float));
  if (!from) return;
  const int64_t width = row_state_width(a);
  for_parts(a, [&](int64_t column, int64_t panel_column) {
    for (int64_t k = 0; k < a.key_width; ++k)
      for_vectors(a.value_width, [&](int64_t c, auto&& get, auto&&) {
        const int64_t at = panel_column + c;
        store(to.mixed + at / kPanel * a.key_width * kPanel + k * kPanel + at % kPanel,
              get(from + k * width + column + c));
      });
  });
  for (int64_t k = 0; k < a.key_width; ++k) to.one[k] = from[(k + 1) * width - 1];
}

inline void store_state(const Arguments& a, float* to, const State& from) {
  const int64_t width = row_state_width(a);
  for_parts(a, [&](int64_t column, int64_t panel_column) {
    for (int64_t k = 0; k < a.key_width; ++k)
      for_vectors(a.value_width, [&](int64_t c, auto&&, auto&& put) {
        const int64_t at = panel_column + c;
        put(to + k * width + column + c,
            load(from.mixed + at / kPanel * a.key_width * kPanel + k * kPanel + at % kPanel));
      });
  });
  for (int64_t k = 0; k < a.key_width; ++k) to[(k + 1) * width - 1] = from.one[k];
}

// to <- e^log_decay from
inline void decay(float* to, const float* from, int64_t count, float log_decay) {
  for_vectors(count, [&](int64_t i, auto&& get, auto&& put) { put(to + i, decayed(get(from + i), splat(log_decay))); });
}

// The log-decay of a token. -inf forgets: as a finite number whose exponential is 0, so that it can be subtracted.
template <typename Scalar>
inline double log_decay_of(const Arguments& a, const Chunk& c, int64_t n) {
  if (!c.real(a, n)) return 0;
  const float g = to_float(*row<Scalar>(a.log_decay, c.batch, c.begin + n, c.head));
  return g < -1e4f ? -1e4 : g;
}

// Decays inside a chunk, all from G_t = sum of log-decays from the chunk's begin to t. G is summed in double and kept
// as two floats, so that G_t - G_i is as exact for neighbours at G = -300 as at 0.
struct Decays {
  float high[kWeightRow], low[kWeightRow];
  float since[kChunk];  // exp(G_t): on what was there before the chunk
  float until[kChunk];  // exp(G_end - G_i): from i to the end
  float whole;          // G_end

  template <typename Scalar>
  void set(const Arguments& a, const Chunk& c) {
    double total = 0;
    for (int64_t n = 0; n < kWeightRow; ++n) {
      if (n < c.count) total += log_decay_of<Scalar>(a, c, n);
      high[n] = static_cast<float>(total);
      low[n] = static_cast<float>(total - high[n]);
    }
    whole = static_cast<float>(total);
    for (int64_t n = 0; n < kChunk; n += kLanes) {
      store(since + n, exp(load(high + n) + load(low + n)));
      store(until + n, exp((high[kWeightRow - 1] - load(high + n)) + (low[kWeightRow - 1] - load(low + n))));
    }
  }
  // exp(G_t - G_i) for a vector of t, or of i
  Floats since_key(int64_t t, int64_t i) const { return exp((load(high + t) - high[i]) + (load(low + t) - low[i])); }
  Floats until_query(int64_t t, int64_t i) const { return exp((high[t] - load(high + i)) + (low[t] - load(low + i))); }
};

// Rows of queries or keys, contiguous and in float32; rows that skip(n) are 0.
template <typename Scalar, typename Skip>
inline void gather(float* to, int64_t to_row, const Arguments& a, const Rows& from, const Chunk& c, Skip&& skip) {
  for (int64_t n = 0; n < c.count; ++n) {
    const Scalar* x = row<Scalar>(from, c.batch, c.begin + n, c.head);
    const bool zero = skip(n);
    for_vectors(a.key_width,
                [&](int64_t k, auto&& get, auto&&) { store(to + n * to_row + k, zero ? Floats{} : get(x + k)); });
  }
}
template <typename Scalar>
inline void gather_queries(float* to, int64_t to_row, const Arguments& a, const Chunk& c) {
  gather<Scalar>(to, to_row, a, a.query, c, [](int64_t) { return false; });
}
template <typename Scalar>
inline void gather_keys(float* to, int64_t to_row, const Arguments& a, const Chunk& c) {
  gather<Scalar>(to, to_row, a, a.key, c, [&](int64_t n) { return !c.real(a, n); });
}

inline void scale_rows(float* rows, int64_t row, const float* factors, int64_t count, int64_t width) {
  for (int64_t n = 0; n < count; ++n)
    for (int64_t k = 0; k < width; k += kLanes) store(rows + n * row + k, load(rows + n * row + k) * factors[n]);
}

// Calls put(n, column, vector) for every vector of [v, exp(beta v)]; masked tokens mix as 0. Returns the largest
// |beta v|.
template <typename Scalar, typename Put>
inline float mix(const Arguments& a, const Chunk& c, Put&& put) {
  const float* beta = a.beta ? a.beta + c.head * a.value_width : nullptr;
  Floats largest{};
  for (int64_t n = 0; n < c.count; ++n) {
    const bool real = c.real(a, n);
    const Scalar* v = row<Scalar>(a.value, c.batch, c.begin + n, c.head);
    for_vectors(a.value_width, [&](int64_t j, auto&& get, auto&&) {
      const Floats x = real ? get(v + j) : Floats{};
      put(n, j, x);
      if (!beta) return;
      const Floats exponent = get(beta + j) * x;
      put(n, part_width(a) + j, real ? exp(exponent) : Floats{});
      largest = max(abs(exponent), largest);  // in this order NaN is passed over
    });
  }
  return max(largest);
}

// Mean, free energy and log-normaliser of token n from its sums.
template <typename Scalar>
inline void write_read(const Forward& a, const Chunk& c, int64_t n, const float* values, const float* energies,
                       float total) {
  const int64_t width = a.value_width, place = c.place(a, n);
  const float* beta = a.beta ? a.beta + c.head * width : nullptr;
  const bool empty = total == 0;  // false for NaN
  const float inverse = empty ? 0 : 1 / total;
  a.log_normalizer[place] = empty ? -kInfinity : log(splat(total))[0];
  Scalar* mean = static_cast<Scalar*>(a.mean) + place * width;
  float* free_energy = a.free_energy + (beta ? place * width : 0);
  for_vectors(width, [&](int64_t j, auto&& get, auto&& put) {
    put(mean + j, get(values + j) * inverse);
    if (beta) put(free_energy + j, empty ? Floats{} : log(get(energies + j) * inverse) / get(beta + j));
  });
}

}  // namespace
}  // namespace fem::linear_kernels
