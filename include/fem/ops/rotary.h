#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

// Which computation: the authors' layer with its faults mended, what their public code computes (for checkpoints
// trained with it), or the paper's equations as printed. docs/notation.md lists the differences.
enum class Dialect { kCorrected, kReference, kPaper };

// y_c = x_c cosine_c + x_c' sine_c, where c' is the other element of the pair (2m, 2m + 1). [T, K] or [B, T, K] each.
struct RotaryTable {
  at::Tensor cosine, sine;
};

// The table of integer positions [T] or [B, T] for heads of width K, even, in the dtype and on the device of like.
//   kCorrected, kPaper: pairs (2m, 2m+1) turn by position * theta^(-2m/K): a rotation, scores depend on distances alone
//   kReference:         the same pairs, but element c takes the angle of frequency c mod K/2: not a rotation
RotaryTable rotary_table(const at::Tensor& positions, int64_t width, const at::Tensor& like, double theta = 10000.0,
                         Dialect dialect = Dialect::kCorrected);

// The table of positions start, start + 1, ... start + length - 1. Tables are computed once and remembered, one for
// each width, theta, dialect, dtype and device.
RotaryTable rotary_table(int64_t start, const c10::SymInt& length, int64_t width, const at::Tensor& like,
                         double theta = 10000.0, Dialect dialect = Dialect::kCorrected);

// Rotary position embedding of x [B, T, H, K] at integer positions [T] or [B, T].
at::Tensor rotary(const at::Tensor& x, const at::Tensor& positions, double theta = 10000.0,
                  Dialect dialect = Dialect::kCorrected);

}  // namespace fem
