#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

// Which of two published computations: the paper's formulas, or what the authors' public code computes where the two
// differ (for checkpoints trained with it). docs/notation.md lists the differences.
enum class Dialect { kPaper, kReference };

// Rotary position embedding of x [B, T, H, K], K even, at integer positions [T] or [B, T].
//   kPaper:     pairs (2m, 2m+1) turn by position * theta^(-2m/K): a rotation, scores depend on distances alone
//   kReference: the same pairs, but element c takes the angle of frequency c mod K/2: not a rotation
at::Tensor rotary(const at::Tensor& x, const at::Tensor& positions, double theta = 10000.0,
                  Dialect dialect = Dialect::kPaper);

}  // namespace fem
