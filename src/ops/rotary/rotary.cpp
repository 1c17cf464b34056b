#include "fem/ops/rotary.h"

#include <ATen/ATen.h>

#include "fem/ops/modulate.h"
#include "util/check.h"
#include "util/width.h"

namespace fem {

RotaryTable rotary_table(const at::Tensor& positions, int64_t width, const at::Tensor& like, double theta,
                         Dialect dialect) {
  FEM_CHECK(!positions.is_floating_point() && (positions.dim() == 1 || positions.dim() == 2),
            "rotary: expected integer positions of shape [T] or [B, T], got ", positions.scalar_type(), " ",
            shape_of(positions));
  FEM_CHECK(width % 2 == 0, "rotary: expected an even width K, because elements turn in pairs, got ", width);
  const int64_t half = width / 2;
  // Angles in float64: position * frequency in float32 is off by 1e-3 rad at 32k tokens. The authors' frequencies,
  // though, are rounded to float32, and checkpoints have learnt with those.
  const at::ScalarType precision = dialect == Dialect::kPaper ? at::kDouble : at::kFloat;
  const at::Tensor exponent = at::arange(half, like.options().dtype(precision)) / static_cast<double>(half);
  const at::Tensor frequency = at::pow(theta, exponent).reciprocal().to(at::kDouble);
  const at::Tensor angle = positions.to(at::kDouble).unsqueeze(-1) * frequency;  // [(B,) T, K/2]
  // Element c = 2m or 2m + 1 takes the angle of pair m, or in the reference dialect of frequency c mod K/2.
  const auto spread = [&](const at::Tensor& x) {
    return dialect == Dialect::kPaper ? at::stack({x, x}, -1).flatten(-2) : at::cat({x, x}, -1);
  };
  const at::Tensor sine = spread(angle.sin());
  const at::Tensor even = sine.slice(-1, 0, std::nullopt, 2).neg(), odd = sine.slice(-1, 1, std::nullopt, 2);
  return {spread(angle.cos()).to(like.scalar_type()), at::stack({even, odd}, -1).flatten(-2).to(like.scalar_type())};
}

at::Tensor rotary(const at::Tensor& x, const at::Tensor& positions, double theta, Dialect dialect) {
  return modulate(x, {}, {rotary_table(positions, width_of(x), x, theta, dialect), {}, {}});
}

}  // namespace fem
