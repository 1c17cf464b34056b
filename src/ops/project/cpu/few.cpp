// Few rows (decoding): bound by reading the weights, which are read once and as they are.
#include "ops/project/cpu/common.h"

namespace fem::project_kernels {
namespace {

// Dot products of one row of a weight with the first kRows rows of x.
template <int kRows, typename Scalar>
void dots(const Project& a, const Layer& layer, int64_t n, const float* x) {
  const Scalar* weight = at_row<Scalar>(layer.weight, n, a.depth);
  const float bias = layer.bias ? load_first(static_cast<const Scalar*>(layer.bias) + n, 1)[0] : 0;
  constexpr int kSums = kRows == 1 ? 4 : 2;  // independent sums hide the latency of adding
  Floats sums[kRows][kSums] = {};
  int64_t k = 0;
  for (; k + kSums * kLanes <= a.depth; k += kSums * kLanes)
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      const Floats w = load(weight + k + s * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r][s] += w * load(x + r * a.depth + k + s * kLanes);
    }
  Floats rest[kRows] = {};
  for_vectors(a.depth - k, [&](int64_t j, auto&& get, auto&&) {
    for (int r = 0; r < kRows; ++r) rest[r] += get(weight + k + j) * get(x + r * a.depth + k + j);
  });
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kSums; ++s) rest[r] += sums[r][s];
    store_first(static_cast<Scalar*>(layer.y) + r * layer.width + n, splat(sum(rest[r]) + bias), 1);
  }
}

template <typename Scalar, int kRows = kFewRows>
void all_dots(const Project& a, const Piece& piece, const float* x) {
  if constexpr (kRows > 0) {
    if (a.rows < kRows) return all_dots<Scalar, kRows - 1>(a, piece, x);
    for (int64_t n = piece.begin; n < piece.end; ++n) dots<kRows, Scalar>(a, a.layers[piece.layer], n, x);
  }
}

// y^T = W x^T: rows of the weight are the left operand.
template <typename Scalar>
void transposed_product(const Project& a, const Piece& piece, const float* panels, float* scratch) {
  const Layer& layer = a.layers[piece.layer];
  const int64_t count = piece.end - piece.begin, row = padded(a.rows);
  float* results = scratch;
  const Left weight =
      as_left(at_row<Scalar>(layer.weight, piece.begin, a.depth), count, a.depth, scratch + count * row);
  multiply<false>(count, weight, panels, a.depth, a.rows, {0, panels_of(a.rows)}, results, row);
  for (int64_t n = 0; n < count; ++n) {
    const auto* bias = static_cast<const Scalar*>(layer.bias);
    const float start = bias ? load_first(bias + piece.begin + n, 1)[0] : 0;
    for (int64_t r = 0; r < a.rows; ++r)
      store_first(at_row<Scalar>(layer.y, r, layer.width) + piece.begin + n, splat(results[n * row + r] + start), 1);
  }
}

}  // namespace

namespace FEM_ISA {

void pack_columns(const Project& a, float* panels) {
  const int64_t depth = part_of(a.depth);
  with_scalar(a, [&](auto scalar) {
    for (int64_t from = 0; from < a.depth; from += depth) {
      const int64_t size = lesser(depth, a.depth - from);
      transpose_to_panels(panels + from * padded(a.rows), size, at_row<decltype(scalar)>(a.x, 0, a.depth) + from,
                          a.depth, a.rows, size);
    }
  });
}

void forward_some(const Project& a, const Piece& piece, const float* panels, float* scratch) {
  with_scalar(a, [&](auto scalar) { transposed_product<decltype(scalar)>(a, piece, panels, scratch); });
}

void forward_few(const Project& a, const Piece& piece, float* scratch) {
  with_scalar(a, [&](auto scalar) {
    using Scalar = decltype(scalar);
    const Left x = as_left(at_row<Scalar>(a.x, 0, a.depth), a.rows, a.depth, scratch);
    all_dots<Scalar>(a, piece, x.data);
  });
}

}  // namespace FEM_ISA
}  // namespace fem::project_kernels
