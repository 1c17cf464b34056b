// A few queries over many keys (decoding). A token's row of keys, and of values, holds all heads: they are read side by
// side, so that memory is walked once and in order, and threads share the tokens, not the heads. exp(beta v) is
// recomputed, which costs less than reading it.
#include <utility>

#include "cpu/dot.h"
#include "ops/softmax_read/cpu/common.h"

namespace fem::softmax_kernels {
namespace {

constexpr int64_t kChunk = 16;      // keys whose scores wait on the stack: two chunks and their values fit in L2
constexpr int kWide = 2;            // vectors of sums that are worked on together
constexpr int64_t kMostHeads = 64;  // heads that are read side by side

// The sums 2^g sum_i e^{s_i - highest} [v, e]_i of one head, the same sum of 1, and the highest score.
struct Sums {
  float* mixed;
  float &highest, &total;
};

int64_t floats(const Arguments& a) { return mixed_width(a) + kLanes; }

// Of a part of the keys; memory is [B, parts, Tq, H, floats].
Sums sums_at(const Forward& a, float* memory, int64_t item, int64_t t, int64_t head) {
  float* sums = memory + ((item * a.queries + t) * a.heads + head) * floats(a);
  return {sums, sums[mixed_width(a)], sums[mixed_width(a) + 1]};
}

inline void scale_by(Sums& sums, float factor, int64_t width) {
  for (int64_t c = 0; c < width; c += kLanes) store(sums.mixed + c, load(sums.mixed + c) * factor);
  sums.total *= factor;
}

// e^{from - to}, 0 for a sum of nothing.
inline float rescaling(float from, float to) { return from == -kInfinity ? 0 : exp(splat(from - to))[0]; }

// The scores of a chunk become weights; what was summed before is brought to their scale.
inline void weigh(Sums& sums, float* scores, int64_t count, float highest, int64_t width) {
  if (highest > sums.highest) {
    scale_by(sums, rescaling(sums.highest, highest), width);
    sums.highest = highest;
  }
  const float shift = sums.highest > -kInfinity ? sums.highest : 0;
  Floats total{};
  for_vectors(count, [&](int64_t n, auto&& get, auto&& put) {
    put(scores + n, exp<kGuard>(get(scores + n) - shift));
    total += get(scores + n);  // read again: lanes past the tail are 0 now
  });
  sums.total += sum(total);
}

// Brings part number part out of parts of the keys and values of count tokens to L2.
template <typename Scalar>
inline void fetch(const Forward& a, int64_t batch, int64_t token, int64_t count, int64_t part, int64_t parts) {
  constexpr auto kLine = static_cast<int64_t>(64 / sizeof(Scalar));
  for (int64_t n = count * part / parts; n < count * (part + 1) / parts; ++n)
    for (const auto& [tensor, width] : {std::pair{&a.key, a.key_width}, std::pair{&a.value, a.value_width}})
      for (int64_t head = 0; head < a.heads; ++head) {
        const Scalar* from = row<Scalar>(*tensor, batch, token + n, head);
        for (int64_t i = 0; i < width; i += kLine) __builtin_prefetch(from + i, 0, 2);
      }
}

// What a chunk of keys adds to kVectors vectors of the sums, which stay in registers meanwhile.
template <int kVectors, typename Scalar>
inline void add_values(const float* weights, int64_t keys, const bool* real, const Scalar* value, int64_t value_row,
                       const float* beta, float* out, float* out_energy, Floats& largest) {
  Floats sums[kVectors], energies[kVectors], scale[kVectors];
  Floats most = largest;
  for (int i = 0; i < kVectors; ++i) {
    sums[i] = load(out + i * kLanes);
    energies[i] = beta ? load(out_energy + i * kLanes) : Floats{};
    scale[i] = beta ? load(beta + i * kLanes) : Floats{};
  }
  for (int64_t n = 0; n < keys; ++n, value += value_row) {
    if (real && !real[n]) continue;
    const Floats p = splat(weights[n]);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const Floats x = load(value + i * kLanes), exponent = scale[i] * x;
      sums[i] += p * x;
      if (!beta) continue;
      most = max(abs(exponent), most);  // in this order NaN is passed over
      energies[i] += p * exp(exponent);
    }
  }
  for (int i = 0; i < kVectors; ++i) {
    store(out + i * kLanes, sums[i]);
    if (beta) store(out_energy + i * kLanes, energies[i]);
  }
  largest = most;
}

// The same for the last channels, fewer than a vector.
template <typename Scalar>
inline void add_last_values(const float* weights, int64_t keys, const bool* real, const Scalar* value,
                            int64_t value_row, const float* beta, int64_t count, float* out, float* out_energy,
                            Floats& largest) {
  Scalar rows[kChunk * kLanes] = {};
  for (int64_t n = 0; n < keys; ++n) std::memcpy(rows + n * kLanes, value + n * value_row, count * sizeof(Scalar));
  float scale[kLanes] = {};
  if (beta) std::memcpy(scale, beta, count * sizeof(float));
  add_values<1>(weights, keys, real, rows, kLanes, beta ? scale : nullptr, out, out_energy, largest);
}

// Heads [first, past) of one query over the keys [begin, end).
template <typename Scalar>
void read_keys(const Forward& a, int64_t item, int64_t batch, int64_t t, int64_t first, int64_t past, int64_t begin,
               int64_t end, float* memory) {
  const int64_t width = a.value_width, part = part_width(a), mixed = mixed_width(a);
  const bool* real = a.key_mask ? a.key_mask + batch * a.keys : nullptr;
  Floats largest[kMostHeads] = {};
  for (int64_t head = first; head < past; ++head) {
    Sums sums = sums_at(a, memory, item, t, head);
    std::memset(sums.mixed, 0, floats(a) * sizeof(float));
    sums.highest = -kInfinity;
  }
  for (int64_t base = begin; base < end; base += kChunk) {
    const int64_t keys = lesser(kChunk, end - base);
    float scores[kMostHeads][kChunk], highest[kMostHeads];
    for (int64_t h = 0; h < past - first; ++h) highest[h] = -kInfinity;
    for (int64_t n = 0; n < keys; ++n)
      for (int64_t head = first; head < past; ++head) {
        const bool visible = !real || real[base + n];
        float score = visible ? a.scale * dot(row<Scalar>(a.query, batch, t, head),
                                              row<Scalar>(a.key, batch, base + n, head), a.key_width)
                              : -kInfinity;
        if (visible && is_biased(a)) score += bias_of(a, head, t, base + n);
        scores[head - first][n] = score;
        highest[head - first] = score > highest[head - first] ? score : highest[head - first];
      }
    for (int64_t head = first; head < past; ++head) {
      Sums sums = sums_at(a, memory, item, t, head);
      weigh(sums, scores[head - first], keys, highest[head - first], mixed);
    }
    for (int64_t head = first; head < past; ++head) {
      // A share of the next chunk for every head: it arrives while the exponentials of this one are computed.
      fetch<Scalar>(a, batch, base + kChunk, lesser(kChunk, end - base - kChunk), head - first, past - first);
      const bool* seen = real ? real + base : nullptr;
      float* out = sums_at(a, memory, item, t, head).mixed;
      const float* beta = a.beta ? a.beta + head * width : nullptr;
      const Scalar* value = row<Scalar>(a.value, batch, base, head);
      int64_t c = 0;
      for (; c + kWide * kLanes <= width; c += kWide * kLanes)
        add_values<kWide>(scores[head - first], keys, seen, value + c, a.value.token, beta ? beta + c : nullptr,
                          out + c, out + part + c, largest[head - first]);
      for (; c + kLanes <= width; c += kLanes)
        add_values<1>(scores[head - first], keys, seen, value + c, a.value.token, beta ? beta + c : nullptr, out + c,
                      out + part + c, largest[head - first]);
      if (c < width)
        add_last_values(scores[head - first], keys, seen, value + c, a.value.token, beta ? beta + c : nullptr,
                        width - c, out + c, out + part + c, largest[head - first]);
    }
  }
  for (int64_t head = first; head < past; ++head)
    a.largest[(item * a.queries + t) * a.heads + head] = max(largest[head - first]);
}

}  // namespace

namespace FEM_ISA {

int64_t step_floats(const Arguments& a) { return floats(a); }

void step(const Forward& a, int64_t parts, int64_t begin, int64_t end, float* memory) {
  with_scalar(a, [&](auto scalar) {
    for (int64_t item = begin; item < end; ++item)
      for (int64_t t = 0; t < a.queries; ++t) {
        const int64_t part = item % parts, keys = a.key_end[t] - a.key_begin[t];
        for (int64_t first = 0; first < a.heads; first += kMostHeads)
          read_keys<decltype(scalar)>(a, item, item / parts, t, first, lesser(first + kMostHeads, a.heads),
                                      a.key_begin[t] + keys * part / parts, a.key_begin[t] + keys * (part + 1) / parts,
                                      memory);
      }
  });
}

void finish_step(const Forward& a, int64_t parts, float* memory) {
  for (int64_t batch = 0; batch < a.batch; ++batch)
    for (int64_t t = 0; t < a.queries; ++t)
      for (int64_t head = 0; head < a.heads; ++head) {
        Sums all = sums_at(a, memory, batch * parts, t, head);
        for (int64_t part = 1; part < parts; ++part) {
          const Sums more = sums_at(a, memory, batch * parts + part, t, head);
          const float highest = more.highest > all.highest ? more.highest : all.highest;
          const float factor = rescaling(more.highest, highest);
          scale_by(all, rescaling(all.highest, highest), mixed_width(a));
          for (int64_t c = 0; c < mixed_width(a); c += kLanes)
            store(all.mixed + c, load(all.mixed + c) + load(more.mixed + c) * factor);
          all.total += more.total * factor;
          all.highest = highest;
        }
        with_scalar(a, [&](auto scalar) {
          write_read<decltype(scalar)>(a, batch, head, t, all.mixed, all.highest, all.total);
        });
      }
}

}  // namespace FEM_ISA
}  // namespace fem::softmax_kernels
