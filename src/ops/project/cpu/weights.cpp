// dW = dy^T x and db = sum of dy: x is packed once for all layers; a job takes some rows of one weight and walks down
// the tokens.
#include "ops/project/cpu/common.h"

namespace fem::project_kernels {
namespace {

template <typename Scalar>
void weight_rows(const Project& a, const Piece& piece, const float* panels, float* scratch) {
  const Layer& layer = a.layers[piece.layer];
  const int64_t rows = piece.end - piece.begin, columns = piece.column_end - piece.column_begin;
  const int64_t row = padded(columns);
  float *sums = scratch, *grad = scratch + kResults;
  Floats bias[kBlockRows / kLanes + 1] = {};
  std::memset(sums, 0, sizeof(float) * rows * row);

  for (int64_t token = 0; token < a.rows; token += kInputRows) {
    const int64_t tokens = lesser(kInputRows, a.rows - token);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto* from = static_cast<const Scalar*>(layer.y) + (token + t) * layer.width + piece.begin;
      for (int64_t c = 0; c < rows; c += 16) __builtin_prefetch(from + 8 * layer.width + c);  // rows lie pages apart
      for_vectors(rows, [&](int64_t c, auto&& get, auto&& put) {
        const Floats dy = get(from + c);
        put(grad + t * kGradRow + c, dy);
        bias[c / kLanes] += dy;
      });
    }
    for (int64_t c = 0; c < columns; c += kPanel) {
      const float* panel = panels + token * padded(a.depth) + (piece.column_begin + c) * tokens;
      multiply_one<true>(rows, {grad, 1, kGradRow}, panel, tokens, sums + c, row);
    }
  }
  write_rows(at_row<Scalar>(layer.grad_weight, piece.begin, a.depth) + piece.column_begin, a.depth, sums, row, rows,
             columns);
  if (!layer.grad_bias || piece.column_begin > 0) return;
  auto* to = static_cast<Scalar*>(layer.grad_bias) + piece.begin;
  for_vectors(rows, [&](int64_t c, auto&&, auto&& put) { put(to + c, bias[c / kLanes]); });
}

}  // namespace

namespace FEM_ISA {

void pack_input(const Project& a, int64_t block, float* panels) {
  const int64_t first = block * kInputRows, rows = lesser(kInputRows, a.rows - first);
  with_scalar(a, [&](auto scalar) {
    pack_panels(panels + first * padded(a.depth), rows, at_row<decltype(scalar)>(a.x, first, a.depth), a.depth, rows,
                a.depth);
  });
}

void backward_weight(const Project& a, const Piece& piece, const float* panels, float* scratch) {
  with_scalar(a, [&](auto scalar) { weight_rows<decltype(scalar)>(a, piece, panels, scratch); });
}

}  // namespace FEM_ISA
}  // namespace fem::project_kernels
