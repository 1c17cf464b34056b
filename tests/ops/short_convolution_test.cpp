#include "fem/ops/short_convolution.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using ShortConvolution = KernelTest;
FEM_ON_EVERY_ISA(ShortConvolution);

struct Inputs {
  at::Tensor x, weight, initial, restart;

  Inputs(int64_t batch, int64_t tokens, int64_t channels, int64_t width)
      : x(at::randn({batch, tokens, channels})),
        weight(at::randn({channels, width})),
        initial(at::randn({batch, width - 1, channels})),
        restart(at::rand({batch, tokens}) < 0.2) {}
};

// The output and the gradients of x, weight and initial.
template <typename Convolve>
std::vector<at::Tensor> run(const Convolve& convolve, const Inputs& in, at::ScalarType rounded, at::ScalarType dtype,
                            bool with_initial, bool restarts, bool silu) {
  const auto leaf = [&](const at::Tensor& x) { return x.to(rounded).to(dtype).requires_grad_(); };
  std::vector<at::Tensor> leaves{leaf(in.x), leaf(in.weight)};
  ShortConvolutionOptions options;
  if (with_initial) options.initial = leaves.emplace_back(leaf(in.initial));
  if (restarts) options.restart = in.restart;
  options.silu = silu;
  const at::Tensor y = convolve(leaves[0], leaves[1], options);
  const at::Tensor weights = at::linspace(-1, 1, y.numel()).reshape(y.sizes()).to(rounded).to(dtype);
  auto all = torch::autograd::grad({y}, leaves, {weights});
  all.insert(all.begin(), y.detach());
  return all;
}

TEST_P(ShortConvolution, KernelMatchesTheDefinitionForwardAndBackward) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto& [batch, tokens, channels, width] : std::vector<std::array<int64_t, 4>>{
             {2, 1, 5, 4}, {3, 63, 64, 3}, {1, 111, 100, 4}, {2, 2, 17, 4}, {2, 40, 1, 2}})
      for (const bool with_initial : {true, false})
        for (const bool restarts : {true, false})
          for (const bool silu : {true, false}) {
            SCOPED_TRACE(::testing::Message() << at::toString(dtype) << " B" << batch << " T" << tokens << " C"
                                              << channels << " W" << width << with_initial << restarts << silu);
            const Inputs in(batch, tokens, channels, width);
            const auto actual = run(short_convolution, in, dtype, dtype, with_initial, restarts, silu);
            const auto exact = run(short_convolution_definition, in, dtype, at::kDouble, with_initial, restarts, silu);
            EXPECT_TRUE(close(actual[0], exact[0], forward_tolerance(dtype)));
            for (size_t i = 1; i < exact.size(); ++i)
              EXPECT_TRUE(exact[i].eq(0).all().item<bool>() ? vanishes(actual[i], gradient_tolerance(dtype), 1)
                                                            : close(actual[i], exact[i], gradient_tolerance(dtype)))
                  << i;
          }
}

TEST_P(ShortConvolution, IsTorchsConvolutionOfEveryChannel) {
  const Inputs in(2, 9, 5, 4);
  const at::Tensor padded = at::constant_pad_nd(in.x.to(at::kDouble).transpose(1, 2), {3, 0});
  const at::Tensor expected = at::conv1d(padded, in.weight.to(at::kDouble).unsqueeze(1), {}, at::IntArrayRef(1),
                                         at::IntArrayRef(0), at::IntArrayRef(1), /*groups=*/5)
                                  .transpose(1, 2);
  EXPECT_TRUE(close(short_convolution(in.x, in.weight), expected, kFloat32));
  EXPECT_TRUE(close(short_convolution(in.x.to(at::kDouble), in.weight.to(at::kDouble)), expected, kFloat64));
}

TEST_P(ShortConvolution, AnySplitEqualsOneCallBitwise) {
  const at::NoGradGuard no_gradients;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Inputs in(2, 60, 33, 4);
    const at::Tensor x = in.x.to(dtype), weight = in.weight.to(dtype);
    const at::Tensor whole = short_convolution(x, weight, {.silu = true});
    at::Tensor past = at::zeros({2, 3, 33}, dtype);
    for (int64_t at = 0, step = 1; at < 60; at += step, ++step) {
      const at::Tensor part = x.slice(1, at, std::min<int64_t>(at + step, 60));
      const at::Tensor y = short_convolution(part, weight, {.initial = past, .silu = true});
      EXPECT_TRUE(at::equal(y, whole.narrow(1, at, part.size(1))));
      past = at::cat({past, part}, 1).slice(1, -3);
    }
  }
}

TEST_P(ShortConvolution, ARestartSeesNothingBeforeIt) {
  const Inputs in(1, 20, 8, 4);
  const at::Tensor x = in.x.clone().requires_grad_(), initial = in.initial.clone().requires_grad_();
  at::Tensor restart = at::zeros({1, 20}, at::kBool);
  restart[0][12] = restart[0][14] = true;
  const at::Tensor y = short_convolution(x, in.weight, {.initial = initial, .restart = restart});
  EXPECT_TRUE(at::equal(y.slice(1, 14), short_convolution(x.slice(1, 14), in.weight)));
  EXPECT_TRUE(at::equal(y.slice(1, 12, 14), short_convolution(x.slice(1, 12, 14), in.weight)));
  const auto grads = torch::autograd::grad({y.slice(1, 12).sum()}, {x, initial});
  EXPECT_TRUE(grads[0].slice(1, 0, 12).eq(0).all().item<bool>());
  EXPECT_TRUE(grads[1].eq(0).all().item<bool>());
}

TEST_P(ShortConvolution, ThreadsAndStridesAgreeBitwise) {
  const Inputs in(3, 300, 70, 4);
  const auto with = [&](int threads, const Inputs& inputs) {
    const ScopedThreads scope(threads);
    return run(short_convolution, inputs, at::kFloat, at::kFloat, true, true, true);
  };
  const auto expected = with(1, in);
  Inputs turned = in;
  turned.x = in.x.transpose(0, 2).contiguous().transpose(0, 2);
  turned.weight = at::stack({in.weight, in.weight}, -1).select(-1, 0);
  turned.restart = in.restart.t().contiguous().t();
  for (const auto& actual : {with(2, in), with(5, in), with(1, turned)})
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(actual[i], expected[i])) << i;
}

TEST_P(ShortConvolution, EmptyInputsWork) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const auto& [batch, tokens, channels] : std::vector<std::array<int64_t, 3>>{{0, 5, 3}, {2, 0, 3}, {2, 5, 0}})
      for (const bool with_initial : {true, false}) {
        const Inputs in(batch, tokens, channels, 3);
        const auto all = run(short_convolution, in, dtype, dtype, with_initial, true, true);
        EXPECT_EQ(all[0].sizes(), in.x.sizes());
        EXPECT_TRUE(all[2].eq(0).all().item<bool>());
      }
}

TEST(ShortConvolutionDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(5);
  const Inputs in(2, 5, 3, 3);
  const auto convolve = [&](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
    return {short_convolution(x[0], x[1], {.initial = x[2], .restart = in.restart, .silu = true})};
  };
  const auto exact = [](const at::Tensor& x) { return x.to(at::kDouble); };
  EXPECT_TRUE(gradients_match(convolve, {exact(in.x), exact(in.weight), exact(in.initial)}, /*second_order=*/true));
}

TEST(ShortConvolutionErrors, AreSentences) {
  const at::Tensor x = at::randn({2, 5, 3}), weight = at::randn({3, 4});
  const auto expect = [](auto&& call, const char* text) { EXPECT_TRUE(fails_with(text, call)); };
  expect([&] { short_convolution(x[0], weight); }, "short_convolution: expected x of shape [B, T, C], got [5, 3]");
  expect([&] { short_convolution(x, at::randn({4, 4})); }, "short_convolution: expected weight of shape [3, ");
  for (const int64_t width : {1, 5})
    expect([&] { short_convolution(x, at::randn({3, width})); },
           "short_convolution: expected weight of 2 to 4 tokens, got [3, ");
  expect([&] { short_convolution(x, weight, {.initial = x}); },
         "short_convolution: expected initial of shape [2, 3, 3] to match x [2, 5, 3], got [2, 5, 3]");
  expect([&] { short_convolution(x, weight, {.restart = at::ones({2, 5})}); }, "short_convolution: expected restart");
  expect([&] { short_convolution(x.to(at::kHalf), weight); }, "expected float32, bfloat16 or float64, got Half");
}

}  // namespace
}  // namespace fem::testing
