// Copies of tensor rows in the shapes the tiles want, converted to float32. Source rows have unit element stride.
#pragma once

#include "cpu/tile.h"

namespace fem::cpu {
namespace {

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

inline float to_float(float x) { return x; }
inline float to_float(Bfloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Panels of B = from^T: from has one row per column of B, of the given depth. Missing columns of the last panel are 0.
template <typename Scalar>
inline void pack_panels_transposed(float* to, const Scalar* from, int64_t from_row, int64_t columns, int64_t depth,
                                   float scale = 1) {
  for (int64_t c = 0; c < padded(columns); ++c) {
    float* panel = to + c / kPanel * depth * kPanel + c % kPanel;
    const Scalar* row = from + c * from_row;
    if (c < columns)
      for (int64_t k = 0; k < depth; ++k) panel[k * kPanel] = to_float(row[k]) * scale;
    else
      for (int64_t k = 0; k < depth; ++k) panel[k * kPanel] = 0;
  }
}

}  // namespace
}  // namespace fem::cpu
