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

// Of values d from their mean on. p sums to 1 and p d to 0, so that nothing is lost where b d is small.
GapAndSlope gap_at(const at::Tensor& p, const at::Tensor& d, const at::Tensor& b) {
  at::Tensor weighted = (b.unsqueeze(-1) * d).expm1_().mul_(p);  // p (e^{b d} - 1)
  const at::Tensor total = weighted.sum(-1), gap = at::log1p(total) / b;
  return {gap, (weighted.mul_(d).sum(-1) / (1 + total) - gap) / b};
}

}  // namespace

at::Tensor hidden_temperature(const at::Tensor& p, const at::Tensor& value, const at::Tensor& lambda,
                              const at::Tensor& beta) {
  const at::Tensor mean = (p * value).sum(-1, true), side = at::where(lambda < 0, -1.0, 1.0);
  const at::Tensor above = value - mean, seen = p > 0;
  const at::Tensor gap = gap_at(p, at::where(seen, above, 0.0), beta).gap * lambda;
  // Below the mean, F(-b; v) = -F(b; -v): the same question of the negative values.
  const at::Tensor d = at::where(seen, above * side.unsqueeze(-1), 0.0), wanted = gap.abs();
  const at::Tensor top = d.amax(-1), rounding = 1e-15 * mean.squeeze(-1).abs();
  const at::Tensor none = wanted <= rounding, beyond = wanted.ge(top).logical_and(none.logical_not());
  const at::Tensor idle = none.logical_or(beyond);

  const at::Tensor largest = kLargestExponent / d.abs().amax(-1).clamp_min(1e-300);
  at::Tensor low = at::zeros_like(wanted), high = at::minimum(beta, largest);
  const at::Tensor outside = lambda.lt(0).logical_or(lambda > 1).logical_and(idle.logical_not());
  for (int i = 0; i < kMostSteps && outside.any().item<bool>(); ++i) {
    const at::Tensor short_of = gap_at(p, d, high).gap.lt(wanted).logical_and(high < largest).logical_and(outside);
    if (!short_of.any().item<bool>()) break;
    low = at::where(short_of, high, low);
    high = at::where(short_of, at::minimum(2 * high, largest), high);
  }
  // F is nearly linear in b where b is small. Newton's step, and where it would leave what is known, the middle.
  at::Tensor b = at::where(outside, (low + high) / 2, (lambda * beta).clamp_min(1e-300));
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
