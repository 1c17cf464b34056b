#include "fem/ops/rotary.h"

#include <ATen/ATen.h>

#include "util/check.h"

namespace fem {

at::Tensor rotary(const at::Tensor& x, const at::Tensor& positions, double theta, Dialect dialect) {
  FEM_CHECK(x.dim() == 4 && x.size(3) % 2 == 0, "rotary: expected x of shape [B, T, H, K] with K even, got ",
            shape_of(x));
  FEM_CHECK(!positions.is_floating_point() && (positions.dim() == 1 || positions.dim() == 2) &&
                positions.size(-1) == x.size(1),
            "rotary: expected integer positions of shape [T] or [B, T] with T=", x.size(1), ", got ",
            positions.scalar_type(), " ", shape_of(positions));
  const int64_t half = x.size(3) / 2;
  // Angles in float64: position * frequency in float32 is off by 1e-3 rad at 32k tokens. The authors' frequencies,
  // though, are rounded to float32, and checkpoints have learnt with those.
  const at::ScalarType precision = dialect == Dialect::kPaper ? at::kDouble : at::kFloat;
  const at::Tensor exponent = at::arange(half, x.options().dtype(precision)) / static_cast<double>(half);
  const at::Tensor frequency = at::pow(theta, exponent).reciprocal().to(at::kDouble);
  at::Tensor angle = positions.to(at::kDouble).unsqueeze(-1) * frequency;  // [(B,) T, K/2]
  // Element c = 2m or 2m + 1 takes the angle of pair m, or in the reference dialect of frequency c mod K/2.
  angle = dialect == Dialect::kPaper ? angle.repeat_interleave(2, -1) : at::cat({angle, angle}, -1);
  angle = angle.unsqueeze(-2);  // heads
  const at::Tensor pairs = x.unflatten(-1, {half, 2});
  const at::Tensor turned = at::stack({-pairs.select(-1, 1), pairs.select(-1, 0)}, -1).flatten(-2);
  return x * angle.cos().to(x.scalar_type()) + turned * angle.sin().to(x.scalar_type());
}

}  // namespace fem
