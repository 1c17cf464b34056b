// The errors that src/cpu/vec.h states, measured.
#include <ATen/ATen.h>

#include "cpu/vec_kernel.h"
#include "support/kernel_test.h"

namespace fem::testing {
namespace {

using Vec = KernelTest;
FEM_ON_EVERY_ISA(Vec);

using Kernel = void (*)(const float*, float*, int64_t);

at::Tensor applied(Kernel kernel, const at::Tensor& x) {
  const at::Tensor y = at::empty_like(x);
  kernel(x.const_data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}

// Largest error in units in the last place of the exact result.
double worst_ulp(Kernel kernel, const at::Tensor& x, const at::Tensor& exact) {
  const at::Tensor spacing = at::pow(2.0, exact.abs().log2().floor() - 23);
  return ((applied(kernel, x).to(at::kDouble) - exact).abs() / spacing).max().item<double>();
}

constexpr int64_t kPoints = 400001;

TEST_P(Vec, ExpIsWithinOneAndAHalfUlp) {
  const at::Tensor x = at::linspace(-86, 88, kPoints);
  EXPECT_LE(worst_ulp(vec_test::apply_exp(), x, x.to(at::kDouble).exp()), 1.5);
  const at::Tensor below = at::linspace(-118, 20, kPoints);
  EXPECT_LE(worst_ulp(vec_test::apply_guarded_exp(), below, below.to(at::kDouble).exp() * std::pow(2.0, 46)), 1.5);
}

TEST_P(Vec, ExpOfVeryNegativeIsZeroAndNaNStays) {
  const at::Tensor y = applied(vec_test::apply_exp(), at::tensor({-88.f, -1000.f, -INFINITY, 0.f, NAN}));
  EXPECT_TRUE(at::equal(y.slice(0, 0, 4), at::tensor({0.f, 0.f, 0.f, 1.f})));
  EXPECT_TRUE(std::isnan(y[4].item<float>()));
  EXPECT_TRUE(std::isnan(applied(vec_test::apply_guarded_exp(), at::tensor({NAN}))[0].item<float>()));
}

TEST_P(Vec, LogIsWithinOneAndAHalfUlpAwayFromOne) {
  const at::Tensor x = at::exp(at::linspace(-85, 85, kPoints));
  const at::Tensor far = x.masked_select((x.log().abs() > 0.05));
  EXPECT_LE(worst_ulp(vec_test::apply_log(), far, far.to(at::kDouble).log()), 1.5);
  const at::Tensor near = at::linspace(0.9, 1.1, kPoints);
  const at::Tensor error = (applied(vec_test::apply_log(), near).to(at::kDouble) - near.to(at::kDouble).log()).abs();
  EXPECT_LE(error.max().item<double>(), 1.5 * std::pow(2.0, -24));
  EXPECT_TRUE(std::isnan(applied(vec_test::apply_log(), at::tensor({NAN}))[0].item<float>()));
}

TEST_P(Vec, SigmoidAndSoftplusAreWithinTheirUlp) {
  const at::Tensor x = at::linspace(-85, 85, kPoints);
  EXPECT_LE(worst_ulp(vec_test::apply_sigmoid(), x, x.to(at::kDouble).sigmoid()), 3.0);
  EXPECT_LE(worst_ulp(vec_test::apply_softplus(), x, x.to(at::kDouble).exp().log1p()), 4.0);
}

TEST_P(Vec, Bfloat16RoundsAsTorchDoes) {
  const at::Tensor x =
      at::cat({at::randn({1001}), at::tensor({0.f, -0.f, INFINITY, -INFINITY, 1.00390625f, 1.01171875f})});
  const at::Tensor y = at::empty({x.numel()}, at::kBFloat16);
  vec_test::to_bfloat16()(x.const_data_ptr<float>(), static_cast<uint16_t*>(y.data_ptr()), x.numel());
  EXPECT_TRUE(at::equal(y, x.to(at::kBFloat16)));
}

}  // namespace
}  // namespace fem::testing
