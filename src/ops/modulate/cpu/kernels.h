// What the modulate kernels are given. A row is a token: H heads of K elements with unit stride.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/rows.h"

namespace fem::modulate_kernels {

constexpr int64_t kBlockRows = 96;  // tokens a block: a multiple of every tile's rows
constexpr int64_t kFewRows = 4;     // tokens up to which packing the weight would cost more than it saves

using cpu::Rows;

// How positions become angles; frequency null: not rotated.
struct Angles {
  const double* frequency;  // [K / 2]
  bool halves;              // element c takes frequency c mod K / 2; else c / 2
  const int64_t* position;  // [T], or [B, T] with batch = T
  int64_t batch;
  const double *step_cosine, *step_sine;  // [K] the angles of position 1, as form_angles writes them
};

struct Modulate {
  bool bfloat16;  // else float32
  int64_t rows, tokens, heads, width, hidden_width;
  Rows x;
  const void* hidden;  // [rows, C] contiguous; null: c is 0
  const void* weight;  // [C, H K], unit column stride
  int64_t weight_row;  // its row stride
  bool added;          // x + c; else x (1 + c)
  Angles angles;
  bool positive;  // relu(y) + floor
  float floor;
  const float* limit;  // [H, K]; null: not clipped
  void* y;             // contiguous
};

struct ModulateBackward : Modulate {
  Rows grad;
  void *grad_x, *grad_hidden;  // contiguous; the latter null without hidden
};

// In floats. Weights are packed once a call, scratch is each thread's own.
struct Sizes {
  int64_t panels, transposed_panels, scratch, hidden_row;  // hidden_row: columns of a row of grad_weight's sums
};

struct Packed {
  const float *panels, *transposed;  // of the weight; panels null: read as it is, the latter is for backward
};

// What a thread sums up in backward.
struct Sums {
  float* weight;  // [H K, hidden_row]: the weight's gradient, transposed
  float* limit;   // [H K]
};

FEM_DECLARE_KERNEL(Sizes, sizes, const Modulate&)
FEM_DECLARE_KERNEL(void, angles_at, const Angles&, int64_t width, int64_t position, double* cosine, double* sine)
FEM_DECLARE_KERNEL(void, pack_weight, const Modulate&, float* panels, float* transposed)  // transposed may be null
// Items are blocks of kBlockRows tokens.
FEM_DECLARE_KERNEL(void, forward, const Modulate&, Packed, int64_t begin, int64_t end, float* scratch)
FEM_DECLARE_KERNEL(void, backward, const ModulateBackward&, Packed, Sums, int64_t begin, int64_t end, float* scratch)

}  // namespace fem::modulate_kernels
