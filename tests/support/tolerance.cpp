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

::testing::AssertionResult about_as_exact(const at::Tensor& actual, const at::Tensor& plain, const at::Tensor& exact,
                                          double times) {
  const double ours = rms_error(actual, exact), theirs = rms_error(plain, exact);
  if (theirs == 0 || ours <= times * theirs) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "error " << ours << " (root mean square), plain has " << theirs
                                       << ", allowed " << times << " times that";
}

}  // namespace fem::testing
