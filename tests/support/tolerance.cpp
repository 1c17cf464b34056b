#include "support/tolerance.h"

#include <algorithm>

namespace fem::testing {
namespace {

double rms_error(const at::Tensor& x, const at::Tensor& exact) {
  return (x.detach().to(at::kDouble) - exact.detach()).square().mean().sqrt().item<double>();
}

}  // namespace

::testing::AssertionResult close(const at::Tensor& actual, const at::Tensor& expected, Tolerance tolerance,
                                 double magnitude) {
  if (!actual.defined() || !expected.defined()) return ::testing::AssertionFailure() << "a tensor is undefined";
  if (actual.sizes() != expected.sizes())
    return ::testing::AssertionFailure() << "shape " << actual.sizes() << ", expected " << expected.sizes();
  if (expected.numel() == 0) return ::testing::AssertionSuccess();
  const at::Tensor a = actual.detach().to(at::kDouble).contiguous().view(-1);
  const at::Tensor b = expected.detach().to(at::kDouble).contiguous().view(-1);
  const at::Tensor finite = at::isfinite(b);
  if (!at::equal(at::isnan(a), at::isnan(b)) ||
      !at::equal(a.masked_select(finite.logical_not()), b.masked_select(finite.logical_not())))
    return ::testing::AssertionFailure() << "infinities or NaN differ: " << a.isnan().sum().item<int64_t>()
                                         << " NaN against " << b.isnan().sum().item<int64_t>() << " expected, of "
                                         << b.numel();
  const at::Tensor difference = (a - b).abs().masked_fill(finite.logical_not(), 0);
  const double largest = b.abs().masked_fill(finite.logical_not(), 0).max().item<double>();
  const double scale = std::max(magnitude, largest);
  const int64_t worst = difference.argmax().item<int64_t>();
  const double error = difference[worst].item<double>();
  if (largest == 0)
    return ::testing::AssertionFailure() << "the expected tensor is zero throughout: this case proves nothing";
  if (error <= tolerance.bound * scale) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "element " << worst << " of " << b.numel() << " (shape " << expected.sizes()
                                       << ") is " << a[worst].item<double>() << ", expected " << b[worst].item<double>()
                                       << "; error " << error << " = " << error / scale << " of the largest, allowed "
                                       << tolerance.bound << "; "
                                       << (difference > tolerance.bound * scale).sum().item<int64_t>()
                                       << " elements outside";
}

::testing::AssertionResult vanishes(const at::Tensor& actual, Tolerance tolerance, double magnitude) {
  const double largest = actual.detach().to(at::kDouble).abs().max().item<double>();
  if (largest <= tolerance.bound * magnitude) return ::testing::AssertionSuccess();  // false for NaN
  return ::testing::AssertionFailure() << "expected zeros, got up to " << largest << "; allowed " << tolerance.bound
                                       << " of " << magnitude;
}

double times_plain(const at::Tensor& actual, const at::Tensor& plain, const at::Tensor& exact) {
  return rms_error(actual, exact) / rms_error(plain, exact);
}

::testing::AssertionResult close_on_average(const at::Tensor& actual, const at::Tensor& expected, Tolerance tolerance,
                                            double magnitude) {
  if (actual.sizes() != expected.sizes())
    return ::testing::AssertionFailure() << "shape " << actual.sizes() << ", expected " << expected.sizes();
  const auto size = [](const at::Tensor& x) { return x.square().mean().sqrt().item<double>(); };
  const at::Tensor exact = expected.detach().to(at::kDouble);
  const double error = size(actual.detach().to(at::kDouble) - exact), scale = std::max(magnitude, size(exact));
  if (scale == 0)
    return ::testing::AssertionFailure() << "the expected tensor is zero throughout: this case proves nothing";
  if (error <= tolerance.bound * scale) return ::testing::AssertionSuccess();  // false for NaN
  return ::testing::AssertionFailure() << "root-mean-square error " << error << " = " << error / scale << " of "
                                       << scale << ", allowed " << tolerance.bound;
}

::testing::AssertionResult close_beside_terms(const at::Tensor& actual, const at::Tensor& expected,
                                              const at::Tensor& terms, Tolerance tolerance) {
  if (actual.sizes() != expected.sizes() || terms.sizes() != expected.sizes())
    return ::testing::AssertionFailure() << "shape " << actual.sizes() << ", terms " << terms.sizes() << ", expected "
                                         << expected.sizes();
  const at::Tensor a = actual.detach().to(at::kDouble).reshape(-1), b = expected.detach().to(at::kDouble).reshape(-1);
  const at::Tensor sizes = terms.detach().to(at::kDouble).reshape(-1);
  const at::Tensor outside = ((a - b).abs() <= tolerance.bound * sizes).logical_not();  // NaN is outside
  if (!sizes.any().item<bool>())
    return ::testing::AssertionFailure() << "the terms are zero throughout: this case proves nothing";
  if (!outside.any().item<bool>()) return ::testing::AssertionSuccess();
  const int64_t first = outside.to(at::kInt).argmax().item<int64_t>();
  return ::testing::AssertionFailure() << outside.sum().item<int64_t>() << " of " << b.numel()
                                       << " elements outside; the first, " << first << ", is "
                                       << a[first].item<double>() << ", expected " << b[first].item<double>()
                                       << " of terms of " << sizes[first].item<double>() << ", allowed "
                                       << tolerance.bound << " of those";
}

::testing::AssertionResult about_as_exact(const at::Tensor& actual, const at::Tensor& plain, const at::Tensor& exact,
                                          double times) {
  if (actual.sizes() != exact.sizes() || plain.sizes() != exact.sizes())
    return ::testing::AssertionFailure() << "shape " << actual.sizes() << ", plain " << plain.sizes() << ", expected "
                                         << exact.sizes();
  const at::Tensor expected = exact.detach().to(at::kDouble);
  if (expected.numel() == 0) return ::testing::AssertionSuccess();
  if (!expected.any().item<bool>())
    return ::testing::AssertionFailure() << "the expected tensor is zero throughout: this case proves nothing";
  const auto size = [](const at::Tensor& x, bool largest) {
    return (largest ? x.abs().max() : x.square().mean().sqrt()).item<double>();
  };
  for (const bool largest : {false, true}) {
    const auto error = [&](const at::Tensor& x) { return size(x.detach().to(at::kDouble) - expected, largest); };
    const double ours = error(actual), theirs = error(plain);
    const double rounding = error(expected.to(at::kBFloat16));
    if (ours <= times * std::max(theirs, rounding)) continue;  // false for NaN
    return ::testing::AssertionFailure() << (largest ? "largest" : "root-mean-square") << " error " << ours
                                         << ", plain has " << theirs << ", rounding alone " << rounding << ", allowed "
                                         << times << " times that; the largest is " << size(expected, true);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace fem::testing
