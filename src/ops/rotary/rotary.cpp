#include "fem/ops/rotary.h"

#include <ATen/ATen.h>

#include "fem/ops/modulate.h"
#include "util/check.h"
#include "util/width.h"

namespace fem {

Rotation rotation_of(const at::Tensor& positions, int64_t width, double theta, Dialect dialect) {
  FEM_CHECK(width % 2 == 0, "rotary: expected an even width K, because elements turn in pairs, got ", width);
  const int64_t half = width / 2;
  const bool reference = dialect == Dialect::kReference;
  // The authors' frequencies are rounded to float32, and checkpoints have learnt with those.
  const at::Tensor exponent =
      at::arange(half, positions.options().dtype(reference ? at::kFloat : at::kDouble)) / static_cast<double>(half);
  return {positions, at::pow(theta, exponent).reciprocal().to(at::kDouble), reference};
}

RotaryTable rotary_table(const Rotation& rotation, const at::Tensor& like) {
  // Angles in two parts, a + b: position times the first eight bits of the frequency is exact up to 2^45, and of the
  // others the product loses little. One product in float64 is off by 1e-4 rad at 2^40 (in float32 by 1e-3 at 2^15).
  const at::Tensor first = rotation.frequency.to(at::kBFloat16).to(at::kDouble);
  const at::Tensor position = rotation.positions.to(at::kDouble).unsqueeze(-1);
  const at::Tensor a = position * first, b = position * (rotation.frequency - first);  // [(B,) T, K/2]
  const at::Tensor cosine = a.cos() * b.cos() - a.sin() * b.sin(), sine = a.sin() * b.cos() + a.cos() * b.sin();
  // Element c = 2m or 2m + 1 takes the angle of pair m; by halves, of frequency c mod K/2.
  const auto spread = [&](const at::Tensor& x) {
    return rotation.halves ? at::cat({x, x}, -1) : at::stack({x, x}, -1).flatten(-2);
  };
  const at::Tensor sines = spread(sine).unflatten(-1, {-1, 2});
  return {spread(cosine).to(like.scalar_type()),
          at::stack({-sines.select(-1, 0), sines.select(-1, 1)}, -1).flatten(-2).to(like.scalar_type())};
}

at::Tensor rotary(const at::Tensor& x, const at::Tensor& positions, double theta, Dialect dialect) {
  return modulate(x, {}, {rotation_of(positions, width_of(x), theta, dialect), {}, {}});
}

}  // namespace fem
