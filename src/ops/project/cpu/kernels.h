// What the project kernels are given: contiguous rows, one a token, and the layers that they go through.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::project_kernels {

constexpr int64_t kBlockRows = 96;      // most tokens, or rows of a weight's gradient, that a job takes
constexpr int64_t kBlockColumns = 512;  // most columns of a weight's gradient
constexpr int64_t kFewRows = 4;         // tokens up to which every output is a dot product
constexpr int64_t kSomeRows = 64;       // tokens up to which weights are read as they are, as the left operand

struct Layer {
  const void* weight;  // [width, depth]
  int64_t width;
  const void* bias;  // [width] or null
  void* y;           // [rows, width]: the output, or in backward its gradient, which is only read
  float* panels;     // packed weight: width x depth, padded
  void *grad_weight, *grad_bias;
};

struct Project {
  bool bfloat16;  // else float32
  int64_t rows, depth;
  int64_t block_rows;  // tokens a job takes
  const void* x;       // [rows, depth]
  const Layer* layers;
  int64_t count;
};

// A piece of one layer: rows of the weight and, where its gradient is computed, columns.
struct Piece {
  int64_t layer, begin, end, column_begin, column_end;
};

// Floats of memory: what a layer's packed weight takes (for y, or for the gradient of x), x packed (for the gradients
// of weights, or as columns for some rows), and what is a thread's own.
FEM_DECLARE_KERNEL(int64_t, weight_panels, const Project&, const Layer&)
FEM_DECLARE_KERNEL(int64_t, transposed_weight_panels, const Project&, const Layer&)
FEM_DECLARE_KERNEL(int64_t, input_panels, const Project&)
FEM_DECLARE_KERNEL(int64_t, column_panels, const Project&)
FEM_DECLARE_KERNEL(int64_t, scratch_floats, const Project&)

// Many rows: pack_weight for every layer and part out of kPackParts, then forward over blocks of rows.
constexpr int64_t kPackParts = 4;
FEM_DECLARE_KERNEL(void, pack_weight, const Project&, const Layer&, int64_t part)
FEM_DECLARE_KERNEL(void, forward, const Project&, int64_t block, float* scratch)

// The gradient of x: the same with pack_weight_transposed.
FEM_DECLARE_KERNEL(void, pack_weight_transposed, const Project&, const Layer&, int64_t part)
FEM_DECLARE_KERNEL(void, backward_input, const Project&, int64_t block, void* grad_x, float* scratch)

// The gradients of the weights: pack_input over blocks of kInputRows rows, then backward_weight over pieces.
constexpr int64_t kInputRows = 256;
FEM_DECLARE_KERNEL(void, pack_input, const Project&, int64_t block, float* panels)
FEM_DECLARE_KERNEL(void, backward_weight, const Project&, const Piece&, const float* panels, float* scratch)

// Some rows: pack_columns once, then forward_some over pieces of a weight's rows; few rows: forward_few.
FEM_DECLARE_KERNEL(void, pack_columns, const Project&, float* panels)
FEM_DECLARE_KERNEL(void, forward_some, const Project&, const Piece&, const float* panels, float* scratch)
FEM_DECLARE_KERNEL(void, forward_few, const Project&, const Piece&, float* scratch)

}  // namespace fem::project_kernels
