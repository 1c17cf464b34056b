// Many rows: y = x W^T + b and dx = sum of dy W, in blocks of rows against packed weights. A block's results wait in L2
// for the bias and are written once.
#include "ops/project/cpu/common.h"

namespace fem::project_kernels {
namespace {

int64_t widest(const Project& a) {
  int64_t width = a.depth;
  for (int64_t i = 0; i < a.count; ++i) width = width > a.layers[i].width ? width : a.layers[i].width;
  return width;
}

struct Rows {
  int64_t first, count;
};
Rows rows_at(const Project& a, int64_t block) {
  return {block * a.block_rows, lesser(a.block_rows, a.rows - block * a.block_rows)};
}

template <typename Scalar>
void forward_rows(const Project& a, Rows rows, float* scratch) {
  const Left x = as_left(at_row<Scalar>(a.x, rows.first, a.depth), rows.count, a.depth, scratch + kResults);
  for (int64_t i = 0; i < a.count; ++i) {
    const Layer& layer = a.layers[i];
    for_groups(layer.width, [&](Range panels) {
      const int64_t first = panels.from * kPanel;
      multiply<false>(rows.count, x, layer.panels, a.depth, layer.width, panels, scratch, kGroup * kPanel);
      write_rows(at_row<Scalar>(layer.y, rows.first, layer.width) + first, layer.width, scratch, kGroup * kPanel,
                 rows.count, columns_of(panels, layer.width),
                 layer.bias ? static_cast<const Scalar*>(layer.bias) + first : nullptr);
    });
  }
}

template <typename Scalar>
void backward_rows(const Project& a, Rows rows, Scalar* grad_x, float* scratch) {
  for_groups(a.depth, [&](Range panels) {
    std::memset(scratch, 0, sizeof(float) * rows.count * kGroup * kPanel);
    for (int64_t i = 0; i < a.count; ++i) {
      const Layer& layer = a.layers[i];
      const auto* grad = static_cast<const Scalar*>(layer.y) + rows.first * layer.width;
      multiply<true>(rows.count, as_left(grad, rows.count, layer.width, scratch + kResults), layer.panels, layer.width,
                     a.depth, panels, scratch, kGroup * kPanel);
    }
    write_rows(grad_x + rows.first * a.depth + panels.from * kPanel, a.depth, scratch, kGroup * kPanel, rows.count,
               columns_of(panels, a.depth));
  });
}

// The panels [from, to) of part number part out of kPackParts.
Range panels_in(int64_t columns, int64_t part) {
  return {panels_of(columns) * part / kPackParts, panels_of(columns) * (part + 1) / kPackParts};
}

}  // namespace

namespace FEM_ISA {

int64_t weight_panels(const Project& a, const Layer& layer) { return padded(layer.width) * a.depth; }

int64_t transposed_weight_panels(const Project& a, const Layer& layer) { return padded(a.depth) * layer.width; }

int64_t input_panels(const Project& a) { return padded(a.depth) * a.rows; }

int64_t column_panels(const Project& a) { return padded(a.rows) * a.depth; }

int64_t scratch_floats(const Project& a) { return kResults + kInputRows * kGradRow + kBlockRows * widest(a); }

void pack_weight(const Project& a, const Layer& layer, int64_t part) {
  const Range panels = panels_in(layer.width, part);
  const int64_t first = panels.from * kPanel, columns = columns_of(panels, layer.width), depth = part_of(a.depth);
  if (columns <= 0) return;
  with_scalar(a, [&](auto scalar) {
    const auto* weight = at_row<decltype(scalar)>(layer.weight, first, a.depth);
    for (int64_t from = 0; from < a.depth; from += depth) {
      const int64_t size = lesser(depth, a.depth - from);
      transpose_to_panels(layer.panels + from * padded(layer.width) + first * size, size, weight + from, a.depth,
                          columns, size);
    }
  });
}

void pack_weight_transposed(const Project& a, const Layer& layer, int64_t part) {
  const Range panels = panels_in(a.depth, part);
  const int64_t first = panels.from * kPanel, columns = columns_of(panels, a.depth), depth = part_of(layer.width);
  if (columns <= 0) return;
  with_scalar(a, [&](auto scalar) {
    for (int64_t from = 0; from < layer.width; from += depth) {
      const int64_t size = lesser(depth, layer.width - from);
      pack_panels(layer.panels + from * padded(a.depth) + first * size, size,
                  at_row<decltype(scalar)>(layer.weight, from, a.depth) + first, a.depth, size, columns);
    }
  });
}

void forward(const Project& a, int64_t block, float* scratch) {
  with_scalar(a, [&](auto scalar) { forward_rows<decltype(scalar)>(a, rows_at(a, block), scratch); });
}

void backward_input(const Project& a, int64_t block, void* grad_x, float* scratch) {
  with_scalar(
      a, [&](auto scalar) { backward_rows(a, rows_at(a, block), static_cast<decltype(scalar)*>(grad_x), scratch); });
}

}  // namespace FEM_ISA
}  // namespace fem::project_kernels
