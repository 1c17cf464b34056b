// Operands for the matrix unit. Right operands B [depth x columns] lie in panels of kColumns columns,
// [panel][depth / 2][kColumns][2]: pairs of rows side by side, one 32-bit word a pair.
#pragma once

#include "ops/softmax_read/cpu/common.h"
#include "ops/softmax_read/cpu/matrix_unit.h"

namespace fem::softmax_kernels {
namespace {

constexpr int64_t kColumns = 64;
// Blocks that are visible in part go by strips of queries and whole panels of keys. Few sizes: the unit's code is
// generated for every size it meets.
constexpr int64_t kStrip = 64;
constexpr int64_t kRowStep = 16;  // rows of a product are rounded up to this, for the same reason

inline int64_t even(int64_t n) { return round_up(n, 2); }
inline int64_t columns_of(int64_t width) { return round_up(width, 16); }

// The next count bfloat16 of scratch memory, from a cache line on, as next_of.
inline Bfloat16* next_halves_of(float* at, int64_t& taken, int64_t count) {
  return reinterpret_cast<Bfloat16*>(next_of(at, taken, round_up(count, 32) / 2));
}

// The keys of a block that queries with these borders see, out to whole panels.
inline Range panels_seen(int64_t begin, int64_t end, int64_t base, int64_t keys) {
  const Range seen = clamp(begin - base, end - base, keys);
  if (seen.from == seen.to) return {0, 0};
  return {seen.from / kColumns * kColumns, round_up(seen.to, kColumns)};
}

// Rounded to bfloat16, to nearest, ties to even; it is the upper half of each word, the lower is 0.
inline Words rounded(Floats x) {
  const Words bits = reinterpret_cast<Words>(x);
  const Words nearest = bits + 0x7fff + ((bits >> 16) & 1);
  return (x == x ? nearest : bits | 0x400000) & 0xffff0000;
}

// The first count, 0 past them.
inline Words load_upper(const Bfloat16* p, int64_t count) {
  return reinterpret_cast<Words>(count >= kLanes ? load(p) : load_first(p, count));
}
inline void store_upper(Bfloat16* p, Words upper) {
  const Halves halves = __builtin_convertvector(upper >> 16, Halves);
  std::memcpy(p, &halves, sizeof(halves));
}
inline Words pair(Words first, Words second) { return (first >> 16) | second; }
inline void store_words(Bfloat16* p, Words words) { std::memcpy(p, &words, sizeof(words)); }

// C (+)= A B over columns [from, to) of B and C, panel by panel; B points to its first row in use.
inline void multiply(const MatrixUnit& unit, int64_t rows, Range columns, int64_t depth, const Bfloat16* a, int64_t lda,
                     const Bfloat16* b, int64_t panel_depth, float* c, int64_t ldc, bool add) {
  for (int64_t n = columns.from; n < columns.to; n += kColumns)
    unit.multiply(rows, lesser(kColumns, columns.to - n), depth, lda, kColumns, ldc, add, a, b + n * panel_depth,
                  c + n);
}

// Word w of row r goes to to[w][r], a row of to having to_row words: rows of X become pairs of rows of X^T, pairs of
// rows of X become rows of X^T. get(r, w) gives kLanes words of row r; rows is a multiple of kLanes.
template <typename Get>
inline void transpose_words(Bfloat16* to, int64_t to_row, int64_t rows, int64_t words, Get&& get) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    for (int64_t w = 0; w < words; w += kLanes) {
      Floats block[kLanes];
      for (int l = 0; l < kLanes; ++l) block[l] = reinterpret_cast<Floats>(get(r + l, w));
      transpose(block);
      for (int64_t l = 0; l < lesser(kLanes, words - w); ++l)
        store_words(to + 2 * ((w + l) * to_row + r), reinterpret_cast<Words>(block[l]));
    }
  }
}

// Panels of X^T from rows of X, of even width; get as in transpose_words.
template <typename Get>
inline void pack_transposed(Bfloat16* to, int64_t rows, int64_t width, Get&& get) {
  for (int64_t n = 0; n < rows; n += kColumns)
    transpose_words(to + n * width, kColumns, kColumns, width / 2, [&](int64_t r, int64_t w) { return get(n + r, w); });
}

// kLanes words of key n of a block, 0 past its width. Whatever a masked key holds, even NaN, is 0.
struct KeyRows {
  const Bfloat16* first;
  int64_t step, count, width;
  const bool* real;  // or null

  KeyRows(const Arguments& a, int64_t batch, int64_t head, int64_t base, int64_t count)
      : first(row<Bfloat16>(a.key, batch, base, head)),
        step(a.key.token),
        count(count),
        width(a.key_width),
        real(a.key_mask ? a.key_mask + batch * a.keys + base : nullptr) {}

  bool present(int64_t n) const { return n < count && (!real || real[n]); }
  Words words(int64_t n, int64_t w) const {
    Words x{};
    if (present(n)) std::memcpy(&x, first + n * step + 2 * w, lesser(sizeof(x), 2 * (width - 2 * w)));
    return x;
  }
  Words upper(int64_t n, int64_t c) const { return present(n) ? load_upper(first + n * step + c, width - c) : Words{}; }
};

}  // namespace
}  // namespace fem::softmax_kernels
