// Windows with their level and spread taken out, and forecasts with both put in again.
#pragma once

#include <ATen/ATen.h>

namespace fem {

struct Normalised {
  at::Tensor windows;        // [B, T, C]
  at::Tensor level, spread;  // [B, 1, C]
};

inline Normalised normalised(const at::Tensor& windows, const at::Tensor& level) {
  constexpr double kLeastVariance = 1e-5;  // of a column that does not move
  const at::Tensor spread = (windows.var(1, /*unbiased=*/false, /*keepdim=*/true) + kLeastVariance).sqrt();
  return {(windows - level) / spread, level, spread};
}

// rows [B, M, targets]
inline at::Tensor restored(const at::Tensor& rows, const Normalised& x, const at::Tensor& targets) {
  return rows * x.spread.index_select(2, targets) + x.level.index_select(2, targets);
}

}  // namespace fem
