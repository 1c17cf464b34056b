#include "mixer/hidden_temperature.h"

#include <ATen/ATen.h>

namespace fem {
namespace {

constexpr double kLargestExponent = 600;  // e^600 times any weight is a number still
constexpr int kMostSteps = 200;           // bisection alone needs 60
constexpr double kClose = 1e-13;          // of the gap, beside what values round to

struct GapAndSlope {
  at::Tensor gap, slope;  // F(b) - mean and dF/db = KL(q||p) / b^2
};

GapAndSlope gap_at(const at::Tensor& p, const at::Tensor& d, const at::Tensor& b) {
  const at::Tensor weights = p * at::exp(b.unsqueeze(-1) * d);
  const at::Tensor gap = free_energy_above_mean(p, d, b);
  return {gap, ((weights * d).sum(-1) / weights.sum(-1) - gap) / b};
}

}  // namespace

at::Tensor free_energy_above_mean(const at::Tensor& p, const at::Tensor& above_mean, const at::Tensor& b) {
  // d itself has mean 0, so that expm1(b d) - b d loses nothing where b d is small.
  const at::Tensor exponent = b.unsqueeze(-1) * above_mean;
  return at::log1p((p * at::expm1(exponent)).sum(-1)) / b;
}

at::Tensor hidden_temperature(const at::Tensor& p, const at::Tensor& value, const at::Tensor& gap,
                              const at::Tensor& beta) {
  const at::Tensor mean = (p * value).sum(-1, true), side = at::where(gap < 0, -1.0, 1.0);
  // Below the mean, F(-b; v) = -F(b; -v): the same question of the negative values.
  const at::Tensor d = at::where(p > 0, (value - mean) * side.unsqueeze(-1), 0.0), wanted = gap.abs();
  const at::Tensor top = d.amax(-1), rounding = 1e-15 * mean.squeeze(-1).abs();
  const at::Tensor none = wanted <= rounding, beyond = wanted.ge(top).logical_and(none.logical_not());
  const at::Tensor idle = none.logical_or(beyond);

  const at::Tensor largest = kLargestExponent / d.abs().amax(-1).clamp_min(1e-300);
  at::Tensor low = at::zeros_like(wanted), high = at::minimum(at::where(beta > 0, beta, 1.0), largest);
  for (int i = 0; i < kMostSteps; ++i) {
    const at::Tensor short_of =
        free_energy_above_mean(p, d, high).lt(wanted).logical_and(high < largest).logical_and(idle.logical_not());
    if (!short_of.any().item<bool>()) break;
    low = at::where(short_of, high, low);
    high = at::where(short_of, at::minimum(2 * high, largest), high);
  }
  // Newton's step, and where it would leave what is known, the middle.
  at::Tensor b = high;
  for (int i = 0; i < kMostSteps; ++i) {
    const auto [reached, slope] = gap_at(p, d, b);
    const at::Tensor error = reached - wanted;
    const at::Tensor done = error.abs().le(kClose * wanted + rounding).logical_or(idle).logical_or(low.ge(high));
    if (done.all().item<bool>()) break;
    high = at::where(error > 0, b, high);
    low = at::where(error > 0, low, b);
    const at::Tensor step = b - error / slope;
    const at::Tensor inside = step.gt(low).logical_and(step < high);
    b = at::where(done, b, at::where(inside, step, (low + high) / 2));
  }
  return at::where(none, 0.0, side * b).masked_fill(beyond, NAN);
}

}  // namespace fem
