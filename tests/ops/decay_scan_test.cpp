#include "fem/ops/decay_scan.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using DecayScan = KernelTest;
FEM_ON_EVERY_ISA(DecayScan);

struct Inputs {
  at::Tensor u, log_decay, initial;
};

Inputs random_inputs(int64_t batch, int64_t tokens, int64_t channels, at::ScalarType dtype) {
  const auto leaf = [&](const at::Tensor& x) { return x.to(dtype).requires_grad_(); };
  return {leaf(at::randn({batch, tokens, channels})), leaf(-at::rand({batch, tokens, channels})),
          leaf(at::randn({batch, channels}))};
}

TEST_P(DecayScan, KernelMatchesTheDefinitionForwardAndBackward) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const auto& [batch, tokens, channels] :
         std::vector<std::array<int64_t, 3>>{{2, 1, 5}, {3, 63, 64}, {1, 111, 100}, {1, 1000, 17}, {2, 40, 1}}) {
      SCOPED_TRACE(::testing::Message() << at::toString(dtype) << " B" << batch << " T" << tokens << " C" << channels);
      const Inputs low = random_inputs(batch, tokens, channels, dtype);
      const Inputs exact{low.u.detach().to(at::kDouble).requires_grad_(),
                         low.log_decay.detach().to(at::kDouble).requires_grad_(),
                         low.initial.detach().to(at::kDouble).requires_grad_()};
      const at::Tensor g = at::randn({batch, tokens, channels}).to(dtype);
      for (const bool with_initial : {true, false}) {
        const auto run = [&](auto&& scan, const Inputs& in) {
          const at::Tensor h = scan(in.u, in.log_decay, with_initial ? std::optional(in.initial) : std::nullopt);
          std::vector<at::Tensor> wrt{in.u, in.log_decay};
          if (with_initial) wrt.push_back(in.initial);
          auto grads = torch::autograd::grad({h}, wrt, {g.to(h.scalar_type())});
          grads.insert(grads.begin(), h);
          return grads;
        };
        const auto expected = run(decay_scan_definition, exact), actual = run(decay_scan, low);
        EXPECT_TRUE(close(actual[0], expected[0], forward_tolerance(dtype)));
        for (size_t i = 1; i < expected.size(); ++i) {
          const bool nothing_decays = i == 2 && tokens == 1 && !with_initial;
          EXPECT_TRUE(nothing_decays ? vanishes(actual[i], gradient_tolerance(dtype), 1)
                                     : close(actual[i], expected[i], gradient_tolerance(dtype)))
              << i;
        }
      }
    }
  }
}

TEST_P(DecayScan, AnySplitEqualsOneCallBitwise) {
  at::NoGradGuard no_grad;
  const Inputs in = random_inputs(2, 100, 33, at::kFloat);
  const at::Tensor whole = decay_scan(in.u, in.log_decay, in.initial);
  at::Tensor state = in.initial;
  for (int64_t at = 0, step = 1; at < 100; at += step, ++step) {
    const int64_t end = std::min<int64_t>(at + step, 100);
    const at::Tensor h = decay_scan(in.u.slice(1, at, end), in.log_decay.slice(1, at, end), state);
    EXPECT_TRUE(at::equal(h, whole.slice(1, at, end)));
    state = h.select(1, -1);
  }
}

TEST_P(DecayScan, KeepsItsStateOverAHundredThousandTokens) {
  // The authors' form divides by a cumulative envelope and forgets after about forty tokens; this one must not.
  at::NoGradGuard no_grad;
  const int64_t tokens = 100000;
  const at::Tensor u = at::randn({1, tokens, 3}), log_decay = at::full({1, tokens, 3}, -5.0f);
  log_decay.select(2, 1).fill_(-0.5);
  log_decay.select(2, 2).fill_(-1e-4);
  const at::Tensor h = decay_scan(u, log_decay);
  at::Tensor state = at::zeros({1, 3}, at::kDouble);
  for (int64_t t = 0; t < tokens; ++t) state = state * log_decay.select(1, t).to(at::kDouble).exp() + u.select(1, t);
  for (int64_t c = 0; c < 3; ++c)
    EXPECT_TRUE(close(h.select(1, tokens - 1).select(1, c), state.select(1, c), kFloat32));
}

TEST_P(DecayScan, MinusInfinityForgetsThePast) {
  const Inputs in = random_inputs(1, 20, 8, at::kFloat);
  at::Tensor log_decay = in.log_decay.detach().clone();
  log_decay.select(1, 12).fill_(-INFINITY);
  log_decay.requires_grad_();
  const at::Tensor h = decay_scan(in.u, log_decay, in.initial);
  EXPECT_TRUE(at::equal(h.slice(1, 12), decay_scan(in.u.slice(1, 12), log_decay.slice(1, 12))));
  const auto grads = torch::autograd::grad({h.slice(1, 12).sum()}, {in.u, log_decay, in.initial});
  EXPECT_TRUE((grads[0].slice(1, 0, 12) == 0).all().item<bool>());
  EXPECT_TRUE((grads[1].slice(1, 0, 13) == 0).all().item<bool>());
  EXPECT_TRUE((grads[2] == 0).all().item<bool>());
}

TEST_P(DecayScan, EmptyAndStridedInputs) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    EXPECT_EQ(decay_scan(at::empty({0, 5, 3}, dtype), at::empty({0, 5, 3}, dtype)).sizes(), (at::IntArrayRef{0, 5, 3}));
    const at::Tensor initial = at::ones({2, 3}, dtype).requires_grad_();
    const at::Tensor none = at::empty({2, 0, 3}, dtype).requires_grad_();
    const at::Tensor h = decay_scan(none, at::empty({2, 0, 3}, dtype), initial);
    EXPECT_EQ(h.numel(), 0);
    EXPECT_TRUE((torch::autograd::grad({h.sum()}, {initial})[0] == 0).all().item<bool>());
  }
  const Inputs in = random_inputs(2, 30, 6, at::kFloat);
  const at::Tensor strided = in.u.detach().transpose(1, 2).contiguous().transpose(1, 2);
  EXPECT_TRUE(at::equal(decay_scan(strided, in.log_decay), decay_scan(in.u, in.log_decay)));
}

TEST(DecayScanDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(5);
  const auto scan = [](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
    return {decay_scan(x[0], x[1], x[2])};
  };
  const auto normal = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  EXPECT_TRUE(gradients_match(scan, {normal({2, 5, 3}), -normal({2, 5, 3}).abs(), normal({2, 3})}, true));
}

TEST(DecayScanErrors, AreSentences) {
  const at::Tensor u = at::randn({2, 5, 3});
  const auto expect = [](auto&& call, const char* text) { EXPECT_TRUE(fails_with(text, call)); };
  expect([&] { decay_scan(u[0], u[0]); }, "decay_scan: expected u of shape [B, T, C], got [5, 3]");
  expect([&] { decay_scan(u, u.slice(1, 1)); },
         "decay_scan: expected log_decay of shape [2, 5, 3] to match u [2, 5, 3], got [2, 4, 3]");
  expect([&] { decay_scan(u, u, u); },
         "decay_scan: expected initial of shape [2, 3] to match u [2, 5, 3], got [2, 5, 3]");
  expect([&] { decay_scan(u.to(at::kHalf), u); }, "expected float32, bfloat16 or float64, got Half");
}

}  // namespace
}  // namespace fem::testing
