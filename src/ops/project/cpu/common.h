// Shared by the project kernels.
#pragma once

#include "cpu/pack.h"
#include "ops/project/cpu/kernels.h"

namespace fem::project_kernels {
namespace {

using namespace fem::cpu;

constexpr int64_t kGroup = 256 / kPanel;  // panels whose results wait in L2

// A thread's memory: results of a block, then its left operand where that is converted or packed.
constexpr int64_t kResults = kBlockRows * (kBlockColumns + kPanel);
constexpr int64_t kGradRow = kBlockRows + 16;  // an odd number of cache lines: tokens spread over all sets

// The depth of a product in parts of nearly equal size, so that a part of a panel stays in the first-level cache.
inline int64_t part_of(int64_t depth) {
  constexpr int64_t kMost = 512;
  const int64_t parts = (depth + kMost - 1) / kMost;
  return parts > 0 ? (depth + parts - 1) / parts : 1;
}

// C (+)= A and one panel of B, while the panel after it is brought to L2: it comes from further away, once.
template <bool kAccumulate>
inline void multiply_one(int64_t rows, Left a, const float* panel, int64_t depth, float* c, int64_t c_row) {
  const float* next = panel + depth * kPanel;
  const int64_t ahead = (depth * kTileRows + rows - 1) / rows * kPanel;  // floats to ask for with every tile
  for (int64_t r = 0; r < rows; r += kTileRows) {
    for (int64_t i = 0; i < ahead; i += 16) __builtin_prefetch(next + i, 0, 2);
    next += ahead;
    const int64_t end = lesser(r + kTileRows, rows);
    multiply_panel<kAccumulate>(r, end, a, panel, c, c_row, [&](int64_t, int64_t) { return Range{0, depth}; });
  }
}

// Panels [from, to) of C (+)= A B; B as [part of the depth][panel][depth][kPanel], columns wide in all.
template <bool kAccumulate>
inline void multiply(int64_t rows, Left a, const float* b, int64_t depth, int64_t columns, Range panels, float* c,
                     int64_t c_row) {
  const int64_t part = part_of(depth);
  for (int64_t from = 0; from < depth; from += part) {
    const int64_t size = lesser(part, depth - from);
    const Left left{a.data + from * a.column, a.row, a.column};
    for (int64_t p = panels.from; p < panels.to; ++p) {
      const float* panel = b + from * padded(columns) + p * size * kPanel;
      float* to = c + (p - panels.from) * kPanel;
      if (kAccumulate || from > 0)
        multiply_one<true>(rows, left, panel, size, to, c_row);
      else
        multiply_one<false>(rows, left, panel, size, to, c_row);
    }
  }
}

// Rows of a tensor as float32: where they are, or converted into scratch.
inline Left as_left(const float* from, int64_t, int64_t width, float*) { return {from, width, 1}; }
inline Left as_left(const Bfloat16* from, int64_t rows, int64_t width, float* scratch) {
  pack_rows(scratch, from, width, rows, width);
  return {scratch, width, 1};
}

// to[r][c] = from[r][c] (+ bias[c])
template <typename Scalar>
inline void write_rows(Scalar* to, int64_t to_row, const float* from, int64_t from_row, int64_t rows, int64_t columns,
                       const Scalar* bias = nullptr) {
  for (int64_t r = 0; r < rows; ++r)
    for_vectors(columns, [&](int64_t c, auto&& get, auto&& put) {
      const Floats x = load(from + r * from_row + c);
      put(to + r * to_row + c, bias ? x + get(bias + c) : x);
    });
}

template <typename Scalar>
inline const Scalar* at_row(const void* data, int64_t row, int64_t width) {
  return static_cast<const Scalar*>(data) + row * width;
}
template <typename Scalar>
inline Scalar* at_row(void* data, int64_t row, int64_t width) {
  return static_cast<Scalar*>(data) + row * width;
}

// Calls body(panels) for groups of panels that cover the columns.
template <typename Body>
inline void for_groups(int64_t columns, Body&& body) {
  for (int64_t p = 0; p < panels_of(columns); p += kGroup) body(Range{p, lesser(p + kGroup, panels_of(columns))});
}
inline int64_t columns_of(Range panels, int64_t columns) {
  return lesser(panels.to * kPanel, columns) - panels.from * kPanel;
}

}  // namespace
}  // namespace fem::project_kernels
