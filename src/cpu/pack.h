// Rows of tensors, and copies of them in the shapes the tiles want, converted to float32. Source rows have unit element
// stride.
#pragma once

#include "cpu/rows.h"
#include "cpu/tile.h"

namespace fem::cpu {
namespace {

template <typename Scalar>
inline const Scalar* row(const Rows& tensor, int64_t batch, int64_t token, int64_t head) {
  return static_cast<const Scalar*>(tensor.data) + batch * tensor.batch + token * tensor.token + head * tensor.head;
}

// Runs body(float{}) or body(Bfloat16{}): the dtype becomes a type in one place.
template <typename Arguments, typename Body>
inline auto with_scalar(const Arguments& a, Body&& body) {
  return a.bfloat16 ? body(Bfloat16{}) : body(float{});
}

inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

// to[row][width] = scale * from[row]
template <typename Scalar>
inline void pack_rows(float* to, const Scalar* from, int64_t from_row, int64_t rows, int64_t width, float scale = 1) {
  for (int64_t r = 0; r < rows; ++r)
    for_vectors(width, [&](int64_t i, auto&& get, auto&& put) {
      put(to + r * width + i, get(from + r * from_row + i) * scale);
    });
}

// Panels of B = from [depth x width]; panel_depth rows are reserved in each. Columns up to the panel's end are 0.
template <typename Scalar>
inline void pack_panels(float* to, int64_t panel_depth, const Scalar* from, int64_t from_row, int64_t depth,
                        int64_t width, float scale = 1) {
  for (int64_t c = 0; c < width; c += kLanes) {
    float* panel = to + c / kPanel * panel_depth * kPanel + c % kPanel;
    const int64_t rest = width - c;
    for (int64_t k = 0; k < depth; ++k) {
      const Scalar* row = from + k * from_row + c;
      store(panel + k * kPanel, (rest >= kLanes ? load(row) : load_first(row, rest)) * scale);
    }
  }
  if (width % kPanel != 0 && width % kPanel <= kLanes) {  // the second half of the last panel has no column
    float* half = to + width / kPanel * panel_depth * kPanel + kLanes;
    for (int64_t k = 0; k < depth; ++k) store(half + k * kPanel, Floats{});
  }
}

// Element (r, l) to (l, r), by swapping ever larger blocks off the diagonal.
template <int kBlock = 1>
inline void transpose(Floats (&rows)[kLanes]) {
  if constexpr (kBlock < kLanes) {
    Ints upper, lower;
    for (int l = 0; l < kLanes; ++l) {
      upper[l] = l & kBlock ? kLanes + l - kBlock : l;
      lower[l] = l & kBlock ? kLanes + l : l + kBlock;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) {
      if (r & kBlock) continue;
      const Floats a = rows[r], b = rows[r + kBlock];
      rows[r] = __builtin_shuffle(a, b, upper);
      rows[r + kBlock] = __builtin_shuffle(a, b, lower);
    }
    transpose<2 * kBlock>(rows);
  }
}

// Panels of B = from^T: from has one row per column of B, of the given depth; panel_depth rows are reserved in each
// panel. Missing columns of the last panel are 0.
template <typename Scalar>
inline void transpose_to_panels(float* to, int64_t panel_depth, const Scalar* from, int64_t from_row, int64_t columns,
                                int64_t depth, float scale = 1) {
  for (int64_t c = 0; c < padded(columns); c += kLanes) {
    float* panel = to + c / kPanel * panel_depth * kPanel + c % kPanel;
    for (int64_t k = 0; k < depth; k += kLanes) {
      const int64_t width = depth - k < kLanes ? depth - k : kLanes;
      Floats block[kLanes];
      for (int r = 0; r < kLanes; ++r) {
        const Scalar* row = from + (c + r) * from_row + k;
        block[r] = c + r >= columns ? Floats{} : (width == kLanes ? load(row) : load_first(row, width)) * scale;
      }
      transpose(block);
      for (int64_t r = 0; r < width; ++r) store(panel + (k + r) * kPanel, block[r]);
    }
  }
}

template <typename Scalar>
inline void pack_panels_transposed(float* to, const Scalar* from, int64_t from_row, int64_t columns, int64_t depth,
                                   float scale = 1) {
  transpose_to_panels(to, depth, from, from_row, columns, depth, scale);
}

}  // namespace
}  // namespace fem::cpu
