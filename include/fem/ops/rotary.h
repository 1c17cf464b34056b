#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fem {

// Which computation: the authors' layer with its faults mended, what their public code computes (for checkpoints
// trained with it), or the paper's equations as printed. docs/notation.md lists the differences.
enum class Dialect { kCorrected, kReference, kPaper };

// Rotary position embedding: the pairs of a head of even width K turn with the position. Angles are formed in float64
// for the positions of a call and forgotten with it; they are as exact at position 2^40 as at 0.
struct Rotation {
  at::Tensor positions;  // [T] or [B, T], integers
  at::Tensor frequency;  // [K/2] float64, radians a position
  bool halves = false;   // element c takes frequency c mod K/2 instead of its pair's: not a rotation
};

//   kCorrected, kPaper: pairs (2m, 2m+1) turn by position * theta^(-2m/K): scores depend on distances alone
//   kReference:         the same pairs by halves, frequencies rounded to float32
Rotation rotation_of(const at::Tensor& positions, int64_t width, double theta = 10000.0,
                     Dialect dialect = Dialect::kCorrected);

// x [B, T, H, K] at integer positions [T] or [B, T].
at::Tensor rotary(const at::Tensor& x, const at::Tensor& positions, double theta = 10000.0,
                  Dialect dialect = Dialect::kCorrected);

// The definition: y_c = x_c cosine_c + x_c' sine_c, where c' is the other element of the pair. [T, K] or [B, T, K]
// each, in the dtype of like.
struct RotaryTable {
  at::Tensor cosine, sine;
};
RotaryTable rotary_table(const Rotation& rotation, const at::Tensor& like);

}  // namespace fem
