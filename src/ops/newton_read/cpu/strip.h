// A block of queries beside all keys that they see: strips [kQueries x keys] of scores and weights, and their products
// with packed keys and values. What a query does not see has weight 0 there.
#pragma once

#include "cpu/pack.h"
#include "ops/newton_read/cpu/kernels.h"

namespace fem::newton_kernels {
namespace {

using namespace fem::cpu;

constexpr int64_t kDepth = 512;  // keys whose part of a panel stays in the second-level cache

// The next count floats of memory; with at = null only counts them.
struct Memory {
  float* at;
  int64_t floats = 0;

  float* take(int64_t count) {
    floats += count;
    return at ? at + floats - count : nullptr;
  }
};

// Keys and values of one head. _t: panels of keys, for products with rows; else panels of channels, for mixing.
struct PackedHead {
  float *key_t, *value_t, *key, *value;

  static int64_t floats(const Arguments& a) {
    return padded(a.keys) * (a.key_width + a.value_width) + a.keys * (padded(a.key_width) + padded(a.value_width));
  }

  PackedHead(const Arguments& a, int64_t head) {
    Memory memory{a.packed + head * floats(a)};
    key_t = memory.take(padded(a.keys) * a.key_width);
    value_t = memory.take(padded(a.keys) * a.value_width);
    key = memory.take(a.keys * padded(a.key_width));
    value = memory.take(a.keys * padded(a.value_width));
  }

  const float* space_t(const Arguments& a) const { return a.of_values ? value_t : key_t; }
  const float* space(const Arguments& a) const { return a.of_values ? value : key; }
};

// The queries [begin, begin + count) of a head, and the keys that any of them sees.
struct Block {
  const Arguments& a;
  int64_t batch, head, begin, count;
  Range keys;  // both borders those of panels

  Block(const Arguments& arguments, int64_t item, int64_t index)
      : a(arguments),
        batch(item / a.heads),
        head(item % a.heads),
        begin(index * kQueries),
        count(lesser(kQueries, a.queries - begin)),
        keys{a.key_begin[begin] / kPanel * kPanel, padded(a.key_end[begin + count - 1])} {}

  Range seen(int64_t m) const { return {a.key_begin[begin + m], a.key_end[begin + m]}; }
  int64_t place(int64_t m) const { return (batch * a.queries + begin + m) * a.heads + head; }  // [B, Tq, H]
};

inline int64_t strip_row(const Arguments& a) { return padded(a.keys) + 16; }  // an odd number of cache lines

// strip(m, n) = rows(m) . n-th column of the panels, [depth x keys]
inline void products(const Block& block, float* strip, Left rows, int64_t depth, const float* panels) {
  for (int64_t n = block.keys.from; n < block.keys.to; n += kPanel)
    multiply_panel<false>(0, block.count, rows, panels + n * depth, strip + n, strip_row(block.a),
                          [&](int64_t, int64_t) { return Range{0, depth}; });
}

// to(m, c) = sum_n strip(m, n) panels(n, c), with to [kQueries x padded width]
inline void mix(const Block& block, float* to, const float* strip, const float* panels, int64_t width) {
  const int64_t columns = padded(width), row = strip_row(block.a);
  std::memset(to, 0, block.count * columns * sizeof(float));
  for (int64_t base = block.keys.from; base < block.keys.to; base += kDepth)
    for (int64_t c = 0; c < columns; c += kPanel)
      multiply_panel<true>(0, block.count, {strip, row, 1}, panels + c * block.a.keys, to + c, columns,
                           [&](int64_t first, int64_t last) {
                             const int64_t from = block.seen(first).from, past = block.seen(last).to;
                             return Range{from > base ? from : base, lesser(past, base + kDepth)};
                           });
}

// sums(n, c) += sum_m strip(m, n) rows(m, c), with rows packed in panels of channels
inline void mix_transposed(const Block& block, float* sums, const float* strip, const float* row_panels,
                           int64_t width) {
  const int64_t columns = padded(width), last = lesser(block.keys.to, block.a.keys);
  for (int64_t c = 0; c < columns; c += kPanel)
    multiply_panel<true>(block.keys.from, last, {strip, 1, strip_row(block.a)}, row_panels + c * kQueries, sums + c,
                         columns, [&](int64_t, int64_t) { return Range{0, block.count}; });
}

// Calls body(n) for every vector of keys, the first of which is n.
template <typename Body>
inline void for_keys(const Block& block, Body&& body) {
  for (int64_t n = block.keys.from; n < block.keys.to; n += kLanes) body(n);
}

// Hides in a row of scores, exp of which are weights, what query m does not see.
inline void hide(const Block& block, float* row, int64_t m) {
  const auto [from, to] = block.seen(m);
  for (int64_t n = block.keys.from; n < lesser(from, block.keys.to); ++n) row[n] = -kInfinity;
  for (int64_t n = to > block.keys.from ? to : block.keys.from; n < block.keys.to; ++n) row[n] = -kInfinity;
  if (!block.a.key_mask) return;
  const bool* real = block.a.key_mask + block.batch * block.a.keys;
  for (int64_t n = from; n < to; ++n)
    if (!real[n]) row[n] = -kInfinity;
}

// g(m) = mean(m) - rho q(m), [count x space], and m.g of every row.
inline void gradient_rows(const Block& block, float* g, float* mean_g, const float* mean, int64_t mean_row,
                          const float* query) {
  const int64_t width = block.a.space_width();
  const float share = block.a.of_values ? 0 : block.a.rho / block.a.scale;  // the rows of query are scaled
  for (int64_t m = 0; m < block.count; ++m) {
    Floats total{};
    for_vectors(width, [&](int64_t c, auto&& get, auto&& put) {
      const Floats x = get(mean + m * mean_row + c);
      const Floats y = share == 0 ? x : x - share * get(query + m * block.a.key_width + c);
      put(g + m * width + c, y);
      total += x * y;
    });
    mean_g[m] = sum(total);
  }
}

}  // namespace
}  // namespace fem::newton_kernels
