#include "fem/ops/swiglu.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using Swiglu = KernelTest;
FEM_ON_EVERY_ISA(Swiglu);

struct Inputs {
  at::Tensor gate, up, grad;

  static Inputs of(at::IntArrayRef shape) { return {at::randn(shape) * 3, at::randn(shape), at::randn(shape)}; }
};

// The output, then the gradients of gate and up, computed in dtype on inputs rounded to low; strides stay as they are.
template <typename Function>
std::vector<at::Tensor> run(Function function, const Inputs& in, at::ScalarType low, at::ScalarType dtype) {
  const auto cast = [&](const at::Tensor& x) { return x.to(low).to(dtype).detach(); };
  const at::Tensor gate = cast(in.gate).requires_grad_(), up = cast(in.up).requires_grad_();
  const at::Tensor out = function(gate, up);
  std::vector<at::Tensor> all = torch::autograd::grad({out}, {gate, up}, {cast(in.grad)});
  all.insert(all.begin(), out);
  return all;
}
std::vector<at::Tensor> run_float32(const Inputs& in) { return run(swiglu, in, at::kFloat, at::kFloat); }

void expect_the_definition(const Inputs& in, at::ScalarType dtype) {
  const auto actual = run(swiglu, in, dtype, dtype), expected = run(swiglu_definition, in, dtype, at::kDouble);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].scalar_type(), dtype);
    EXPECT_TRUE(close(actual[i], expected[i], i == 0 ? forward_tolerance(dtype) : gradient_tolerance(dtype))) << i;
  }
}

void expect_equal(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(actual[i], expected[i])) << i;
}

TEST_P(Swiglu, KernelMatchesTheDefinitionForwardAndBackward) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble})
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {1}, {7}, {63}, {64}, {1000}, {2, 63, 5}, {3, 111, 100}, {2, 3, 5, 7}}) {
      SCOPED_TRACE(::testing::Message() << at::toString(dtype) << " " << shape);
      expect_the_definition(Inputs::of(shape), dtype);
    }
}

TEST_P(Swiglu, OneTensorMayBeBoth) {
  const at::Tensor x = at::randn({9, 5}).requires_grad_(), exact = x.detach().to(at::kDouble).requires_grad_();
  const at::Tensor y = swiglu(x, x), expected = swiglu_definition(exact, exact);
  EXPECT_TRUE(close(y, expected, kFloat32));
  EXPECT_TRUE(close(torch::autograd::grad({y.sum()}, {x})[0], torch::autograd::grad({expected.sum()}, {exact})[0],
                    kFloat32Gradient));
}

TEST_P(Swiglu, ThreadsAgreeBitwise) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Inputs in = Inputs::of({3, 101, 333});
    const auto with = [&](int threads) {
      const ScopedThreads scope(threads);
      return run(swiglu, in, dtype, dtype);
    };
    const auto one = with(1);
    for (const int threads : {2, 3, 5}) expect_equal(with(threads), one);
  }
}

TEST_P(Swiglu, StridedInputsGiveTheSame) {
  const Inputs in = Inputs::of({4, 30, 6});
  const auto expected = run_float32(in);
  const auto turned = [](const at::Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); };
  const auto every_second = [](const at::Tensor& x) { return at::stack({x, x}, -1).select(-1, 0); };
  const auto half = [](const at::Tensor& x) { return at::cat({x, x}, -1).slice(-1, 0, x.size(-1)); };
  expect_equal(run_float32({turned(in.gate), every_second(in.up), half(in.grad)}), expected);
  expect_equal(run_float32({half(in.gate), turned(in.up), every_second(in.grad)}), expected);
  expect_equal(run_float32({in.gate, half(in.up), turned(in.grad)}), expected);
}

TEST_P(Swiglu, BroadcastInputsAndGradientsGiveTheSame) {
  const Inputs in = Inputs::of({4, 30, 6});
  for (const at::Tensor& grad : {at::full({}, 0.7), at::randn({6}), at::randn({4, 1, 1})}) {
    const at::Tensor wide = grad.expand({4, 30, 6});
    expect_equal(run_float32({in.gate, in.up, wide}), run_float32({in.gate, in.up, wide.contiguous()}));
    expect_equal(run_float32({wide, in.up, in.grad}), run_float32({wide.contiguous(), in.up, in.grad}));
    expect_equal(run_float32({in.gate, wide, in.grad}), run_float32({in.gate, wide.contiguous(), in.grad}));
  }
}

TEST_P(Swiglu, EmptyInputsWork) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble})
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0}, {2, 0, 3}})
      for (const at::Tensor& x : run(swiglu, Inputs::of(shape), dtype, dtype))
        EXPECT_EQ(x.sizes(), at::IntArrayRef(shape));
}

TEST_P(Swiglu, NaNReachesItsOwnElementAlone) {
  constexpr int64_t kElements = 1003;
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t where : {int64_t{0}, int64_t{500}, kElements - 1})
      for (const auto part : {&Inputs::gate, &Inputs::up, &Inputs::grad}) {
        Inputs in = Inputs::of({kElements});
        (in.*part)[where] = NAN;
        const auto all = run(swiglu, in, dtype, dtype);
        // The output does not depend on its gradient, nor that of up on up.
        const std::array<bool, 3> reached{part != &Inputs::grad, true, part != &Inputs::up};
        for (size_t i = 0; i < all.size(); ++i) {
          EXPECT_EQ(all[i].isnan().sum().item<int64_t>(), reached[i] ? 1 : 0) << i;
          EXPECT_EQ(all[i][where].isnan().item<bool>(), reached[i]) << i;
        }
      }
}

TEST_P(Swiglu, VeryLargeGatesAreOpenOrShut) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const double size : {1e4, 1e30}) {
      Inputs in = Inputs::of({37});
      const auto rounded = [&](const at::Tensor& x) { return x.to(dtype).to(at::kFloat); };
      const at::Tensor up = rounded(in.up), grad = rounded(in.grad);
      in.gate.fill_(size);
      const at::Tensor gate = rounded(in.gate);
      const auto open = run(swiglu, in, dtype, dtype);
      expect_equal(open, {(gate * up).to(dtype), (grad * up).to(dtype), (grad * gate).to(dtype)});
      in.gate.fill_(-size);
      for (const at::Tensor& x : run(swiglu, in, dtype, dtype)) EXPECT_TRUE((x == 0).all().item<bool>());
    }
}

TEST_P(Swiglu, EveryGateKeepsItsDigits) {
  // In bands, so that large outputs do not hide the errors of small ones.
  for (int64_t low = -80; low < 200; low += 2) {
    SCOPED_TRACE(low);
    Inputs in = Inputs::of({101});
    in.gate = at::linspace(low, low + 2, 101);
    expect_the_definition(in, at::kFloat);
  }
}

TEST(SwigluDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(5);
  const auto product = [](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> { return {swiglu(x[0], x[1])}; };
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {5}, {2, 3, 2}}) {
    const Inputs in = Inputs::of(shape);
    EXPECT_TRUE(gradients_match(product, {in.gate.to(at::kDouble), in.up.to(at::kDouble)}, /*second_order=*/true));
  }
}

TEST(SwigluErrors, AreSentences) {
  const at::Tensor x = at::randn({2, 5, 3});
  const auto expect = [](auto&& call, const char* text) { EXPECT_TRUE(fails_with(text, call)); };
  expect([&] { swiglu(x, x.slice(1, 1)); },
         "swiglu: expected up of shape [2, 5, 3] to match gate [2, 5, 3], got [2, 4, 3]");
  expect([&] { swiglu(x, x[0]); }, "swiglu: expected up of shape [2, 5, 3] to match gate [2, 5, 3], got [5, 3]");
  expect([&] { swiglu(x, x.to(at::kBFloat16)); }, "swiglu: expected up as Float like gate, got BFloat16");
  expect([&] { swiglu(x.to(at::kHalf), x.to(at::kHalf)); }, "swiglu: expected float32, bfloat16 or float64, got Half");
}

}  // namespace
}  // namespace fem::testing
