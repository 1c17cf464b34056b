// Matrix products on tiles that live in registers. The right operand B [depth x columns] is packed in panels of kPanel
// columns, [panel][depth][kPanel]; the left operand A is read by broadcast with any two strides, so that A and A^T cost
// the same; C is row-major. One tile runs at 96-99 % of the FMA peak of a core (docs/performance_log.md).
#pragma once

#include "cpu/vec.h"

namespace fem::cpu {
namespace {

// kTileRows x 2 accumulators, two registers of B and one broadcast fill the register file.
constexpr int kTileRows = kLanes == 16 ? 12 : 6;
constexpr int kPanel = 2 * kLanes;

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int64_t panels_of(int64_t columns) { return (columns + kPanel - 1) / kPanel; }
constexpr int64_t padded(int64_t columns) { return panels_of(columns) * kPanel; }

// A(r, k) = data[r * row + k * column]
struct Left {
  const float* data;
  int64_t row, column;
};

// Not inlined: the surroundings would take registers from the accumulators.
template <int kRows, bool kAccumulate>
__attribute__((noinline)) void tile(int64_t depth, const float* a, int64_t a_row, int64_t a_column, const float* panel,
                                    float* c, int64_t c_row) {
  Floats low[kRows], high[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    low[r] = Floats{};
    high[r] = Floats{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    const Floats b_low = load(panel), b_high = load(panel + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Floats x = splat(a[r * a_row]);
      low[r] += x * b_low;
      high[r] += x * b_high;
    }
    a += a_column;
    panel += kPanel;
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    float* to = c + r * c_row;
    // C is added last: sums of blocks lose fewer digits than one long sum.
    store(to, kAccumulate ? load(to) + low[r] : low[r]);
    store(to + kLanes, kAccumulate ? load(to + kLanes) + high[r] : high[r]);
  }
}

// The last, smaller tile of a column of tiles.
template <bool kAccumulate, int kRows = kTileRows - 1>
inline void tile_of(int64_t rows, int64_t depth, Left a, const float* panel, float* c, int64_t c_row) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return tile<kRows, kAccumulate>(depth, a.data, a.row, a.column, panel, c, c_row);
    tile_of<kAccumulate, kRows - 1>(rows, depth, a, panel, c, c_row);
  }
}

// C(rows, one panel) (+)= A B, where each tile of rows needs only part of the depth: range(first, last) gives it.
template <bool kAccumulate, typename DepthRange>
inline void multiply_panel(int64_t row_begin, int64_t row_end, Left a, const float* panel, float* c, int64_t c_row,
                           DepthRange&& range) {
  for (int64_t r = row_begin; r < row_end; r += kTileRows) {
    const int64_t rows = row_end - r < kTileRows ? row_end - r : kTileRows;
    const auto [from, to] = range(r, r + rows - 1);
    const Left left{a.data + r * a.row + from * a.column, a.row, a.column};
    const int64_t depth = to > from ? to - from : 0;
    if (rows == kTileRows)
      tile<kTileRows, kAccumulate>(depth, left.data, left.row, left.column, panel + from * kPanel, c + r * c_row,
                                   c_row);
    else
      tile_of<kAccumulate>(rows, depth, left, panel + from * kPanel, c + r * c_row, c_row);
  }
}

struct Range {
  int64_t from, to;
};

}  // namespace
}  // namespace fem::cpu
