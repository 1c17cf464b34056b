#include "fem/ops/rms_norm.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using RmsNorm = KernelTest;
FEM_ON_EVERY_ISA(RmsNorm);

// y, dx, dscale, computed in dtype on inputs rounded to low.
template <typename Function>
std::vector<at::Tensor> run(Function function, const at::Tensor& x, const at::Tensor& scale, const at::Tensor& g,
                            at::ScalarType low, at::ScalarType dtype) {
  const auto leaf = [&](const at::Tensor& t) { return t.to(low).to(dtype).detach().clone().requires_grad_(); };
  const at::Tensor input = leaf(x), factor = leaf(scale), y = function(input, factor, 1e-5);
  const auto grads = torch::autograd::grad({y}, {input, factor}, {g.to(low).to(dtype)});
  return {y, grads[0], grads[1]};
}

TEST_P(RmsNorm, KernelMatchesTheDefinitionForwardAndBackward) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto& shape :
         std::vector<std::vector<int64_t>>{{1, 1}, {3, 7}, {2, 63, 96}, {1000, 17}, {2, 3, 5, 64}}) {
      SCOPED_TRACE(::testing::Message() << at::toString(dtype) << " " << shape);
      const at::Tensor x = at::randn(shape) * 3, scale = at::randn({shape.back()}), g = at::randn(shape);
      const auto actual = run(rms_norm, x, scale, g, dtype, dtype);
      const auto expected = run(rms_norm_definition, x, scale, g, dtype, at::kDouble);
      EXPECT_TRUE(close(actual[0], expected[0], forward_tolerance(dtype)));
      // What x gains in length the norm takes away: dx is a difference of terms of this size.
      const double of_terms = (g * scale).abs().max().item<double>() / x.square().mean(-1).sqrt().min().item<double>();
      EXPECT_TRUE(close(actual[1], expected[1], gradient_tolerance(dtype), of_terms));
      EXPECT_TRUE(close(actual[2], expected[2], gradient_tolerance(dtype)));
    }
}

TEST_P(RmsNorm, ThreadsAgree) {
  const at::Tensor x = at::randn({700, 100}), scale = at::randn(100), g = at::randn({700, 100});
  const auto with = [&](int threads) {
    const ScopedThreads scope(threads);
    return run(rms_norm, x, scale, g, at::kFloat, at::kFloat);
  };
  const auto one = with(1), three = with(3);
  EXPECT_TRUE(at::equal(one[0], three[0]) && at::equal(one[1], three[1]));
  EXPECT_TRUE(close(three[2], one[2], kFloat32Gradient));
  EXPECT_TRUE(at::equal(with(3)[2], three[2])) << "a second run differs";
}

TEST_P(RmsNorm, StridedAndEmptyInputsGiveTheSame) {
  const at::Tensor x = at::randn({5, 6, 9}), scale = at::randn(9);
  const at::Tensor strided = x.transpose(0, 2).contiguous().transpose(0, 2);
  EXPECT_TRUE(at::equal(rms_norm(strided, scale), rms_norm(x, scale)));
  const at::Tensor none = at::empty({0, 9}).requires_grad_(), leaf = scale.clone().requires_grad_();
  rms_norm(none, leaf).sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad(), at::zeros(9)));
  const at::Tensor input = x.clone().requires_grad_();
  rms_norm(input, scale).sum().backward();  // a gradient that is one number, expanded
  const at::Tensor expected = torch::autograd::grad({rms_norm(input, scale)}, {input}, {at::ones_like(x)})[0];
  EXPECT_TRUE(at::equal(input.grad(), expected));
}

TEST_P(RmsNorm, ZeroRowsAndNaNStayTheirOwn) {
  at::Tensor x = at::randn({4, 12});
  x[1].zero_();
  x[2][5] = NAN;
  const at::Tensor y = rms_norm(x, at::ones(12));
  EXPECT_TRUE(at::equal(y[1], at::zeros(12)));
  EXPECT_TRUE(y[2].isnan().all().item<bool>());
  EXPECT_FALSE(y[0].isnan().any().item<bool>() || y[3].isnan().any().item<bool>());
}

TEST(RmsNormDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(3);
  const auto norm = [](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> { return {rms_norm(x[0], x[1])}; };
  EXPECT_TRUE(gradients_match(norm, {at::randn({2, 3, 5}, at::kDouble), at::randn({5}, at::kDouble)}, true));
}

TEST(RmsNormErrors, AreSentences) {
  const at::Tensor x = at::randn({2, 5});
  const auto expect = [](auto&& call, const char* text) { EXPECT_TRUE(fails_with(text, call)); };
  expect([&] { rms_norm(x[0], at::ones(5)); }, "rms_norm: expected x of shape [..., tokens, D], got [5]");
  expect([&] { rms_norm(x, at::ones(4)); }, "rms_norm: expected scale of shape [5] to match x [2, 5], got [4]");
  expect([&] { rms_norm(x, at::ones(5, at::kDouble)); }, "rms_norm: expected scale as Float like x, got Double");
  expect([&] { rms_norm(x, at::ones(5), 0); }, "rms_norm: expected a positive eps, got 0");
  expect([&] { rms_norm(x.to(at::kHalf), at::ones(5)); }, "expected float32, bfloat16 or float64, got Half");
}

}  // namespace
}  // namespace fem::testing
