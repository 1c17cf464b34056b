#include "fem/ops/gated_scan.h"

#include <ATen/OpMathType.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using GatedScanKernel = KernelTest;
FEM_ON_EVERY_ISA(GatedScanKernel);

struct Case {
  int64_t batch, tokens, channels;
  bool bias = true, initial = false, masked = false, restart = false, reverse = false, silu = false;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {2, 1, 5},
      {3, 63, 64, true, true},
      {1, 111, 100, false, false, true},
      {1, 1000, 17, true, true, true, true},
      {2, 40, 2, true, false, false, true, true},
      {2, 300, 64, false, true, true, true, true},
      {2, 1, 5, true, true, false, false, false, true},
      {1, 111, 100, false, false, true, false, false, true},
      {2, 300, 17, true, true, true, true, true, true},
  };
  return all;
}

// u, decay_logit, gate_logit, weight, bias, initial; the last two undefined where there are none.
std::vector<at::Tensor> inputs_of(const Case& c) {
  const auto tokens = [&] { return at::randn({c.batch, c.tokens, c.channels}); };
  return {tokens(),
          tokens() * 3,
          tokens(),
          at::rand({c.channels}) + 0.5,
          c.bias ? at::randn({c.channels}) : at::Tensor(),
          c.initial ? at::randn({c.batch, c.channels}) : at::Tensor()};
}

// A fifth of them, or none if they are not marked.
std::optional<at::Tensor> some_tokens(const Case& c, bool marked) {
  return marked ? std::optional(at::rand({c.batch, c.tokens}) < 0.2) : std::nullopt;
}

// Four fifths of them.
std::optional<at::Tensor> key_mask_of(const Case& c) {
  const std::optional<at::Tensor> absent = some_tokens(c, c.masked);
  return absent ? std::optional(absent->logical_not()) : std::nullopt;
}

// A restart at the first token would hide initial.
std::optional<at::Tensor> some_restarts(const Case& c) {
  const std::optional<at::Tensor> restarts = some_tokens(c, c.restart);
  if (restarts) restarts->select(1, c.reverse ? c.tokens - 1 : 0).fill_(false);
  return restarts;
}

std::optional<at::Tensor> if_there(const at::Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; }

// units and h, then the gradients of all inputs there are under cotangents for both.
template <typename Scan>
std::vector<at::Tensor> run(Scan scan, const std::vector<at::Tensor>& inputs, const GatedScanOptions& marks,
                            const std::vector<at::Tensor>& grads, at::ScalarType low, at::ScalarType dtype) {
  std::vector<at::Tensor> x, wanted;
  for (const at::Tensor& input : inputs) {
    const auto own = x.size() == 5 ? at::toOpMathType(dtype) : dtype;  // of initial
    x.push_back(input.defined() ? input.to(low).to(own).detach().clone().requires_grad_() : input);
    if (input.defined()) wanted.push_back(x.back());
  }
  GatedScanOptions options = marks;
  options.initial = if_there(x[5]);
  const GatedScan out = scan(x[0], x[1], x[2], {x[3], if_there(x[4])}, options);
  std::vector<at::Tensor> all{out.units, out.h};
  for (const at::Tensor& d :
       torch::autograd::grad(all, wanted, {grads[0].to(low).to(dtype), grads[1].to(low).to(out.h.scalar_type())}, {},
                             false, /*allow_unused=*/true))
    all.push_back(d);
  return all;
}

TEST_P(GatedScanKernel, MatchesTheDefinitionForwardAndBackward) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Case& c : cases()) {
      SCOPED_TRACE(::testing::Message() << at::toString(dtype) << " T" << c.tokens << " C" << c.channels);
      const std::vector<at::Tensor> in = inputs_of(c);
      const std::vector<at::Tensor> g{at::randn_like(in[0]), at::randn_like(in[0])};
      const GatedScanOptions marks{{}, key_mask_of(c), some_restarts(c), c.reverse, c.silu};
      const auto actual = run(gated_scan, in, marks, g, dtype, dtype);
      const auto expected = run(gated_scan_definition, in, marks, g, dtype, at::kDouble);
      for (size_t i = 0; i < actual.size(); ++i)
        if (c.tokens == 1 && !c.initial && i == 3)  // nothing decays before the first token
          EXPECT_EQ(actual[i].abs().max().item<float>(), 0);
        else
          EXPECT_TRUE(close(actual[i], expected[i],
                            i < 2 ? forward_tolerance(actual[i].scalar_type()) : gradient_tolerance(dtype)))
              << i;
    }
}

TEST_P(GatedScanKernel, AnySplitEqualsOneCallBitwise) {
  const at::NoGradGuard no_grad;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    auto in = inputs_of({2, 100, 33, true, true});
    for (size_t i = 0; i < 5; ++i) in[i] = in[i].to(dtype);
    const ScanNorm norm{in[3], in[4]};
    const GatedScan whole = gated_scan(in[0], in[1], in[2], norm, {in[5]});
    at::Tensor state = in[5];
    for (int64_t at = 0, step = 1; at < 100; at += step, ++step) {
      const auto part = [&](const at::Tensor& x) { return x.slice(1, at, std::min<int64_t>(at + step, 100)); };
      const GatedScan scan = gated_scan(part(in[0]), part(in[1]), part(in[2]), norm, {state});
      EXPECT_TRUE(at::equal(scan.units, part(whole.units)) && at::equal(scan.h, part(whole.h))) << dtype;
      state = scan.h.select(1, -1);
    }
  }
}

TEST_P(GatedScanKernel, ARestartForgetsEvenWhatIsNotANumber) {
  const auto in = inputs_of({1, 20, 9});
  at::Tensor u = in[0].clone();
  u.slice(1, 0, 12).fill_(NAN);
  u.requires_grad_();
  at::Tensor restart = at::zeros({1, 20}, at::kBool);
  restart[0][12] = true;
  const at::Tensor units = gated_scan(u, in[1], in[2], {in[3], in[4]}, {{}, {}, restart}).units.slice(1, 12);
  const auto rest = [](const at::Tensor& x) { return x.slice(1, 12); };
  EXPECT_TRUE(at::equal(units, gated_scan(rest(in[0]), rest(in[1]), rest(in[2]), {in[3], in[4]}).units));
}

TEST_P(GatedScanKernel, AnAbsentTokenChangesNoOther) {
  const at::NoGradGuard no_grad;
  const auto in = inputs_of({2, 30, 20, true, true});
  at::Tensor key_mask = at::ones({2, 30}, at::kBool);
  key_mask.slice(1, 10, 17).fill_(false);
  const auto without = [](const at::Tensor& x) { return at::cat({x.slice(1, 0, 10), x.slice(1, 17)}, 1); };
  const ScanNorm norm{in[3], in[4]};
  const GatedScan padded = gated_scan(in[0], in[1], in[2], norm, {in[5], key_mask});
  EXPECT_TRUE(at::equal(without(padded.units),
                        gated_scan(without(in[0]), without(in[1]), without(in[2]), norm, {in[5]}).units));
}

TEST_P(GatedScanKernel, KeepsItsStateOverAHundredThousandTokens) {
  const at::NoGradGuard no_grad;
  constexpr int64_t tokens = 100000;
  const at::Tensor u = at::randn({1, tokens, 3}), logit = at::empty({1, tokens, 3});
  for (int64_t c = 0; c < 3; ++c) logit.select(2, c).fill_(std::array{5.0, -0.5, -9.0}[c]);
  const at::Tensor h = gated_scan(u, logit, logit, {at::ones(3), {}}).h.select(1, -1);
  const at::Tensor decay = (-at::softplus(logit.select(1, 0).to(at::kDouble))).exp();
  at::Tensor state = at::zeros({1, 3}, at::kDouble);
  for (int64_t t = 0; t < tokens; ++t) state = state * decay + u.select(1, t);
  for (int64_t c = 0; c < 3; ++c) EXPECT_TRUE(close(h.select(1, c), state.select(1, c), kFloat32));
}

TEST_P(GatedScanKernel, ThreadsAgree) {
  const Case c{2, 700, 48, true, true, true, true};
  const auto in = inputs_of(c);
  const std::vector<at::Tensor> g{at::randn_like(in[0]), at::randn_like(in[0])};
  const GatedScanOptions marks{{}, key_mask_of(c), some_tokens(c, true)};
  const auto with = [&](int threads) {
    const ScopedThreads scope(threads);
    return run(gated_scan, in, marks, g, at::kFloat, at::kFloat);
  };
  const auto one = with(1), three = with(3);
  for (size_t i = 0; i < one.size(); ++i) {
    const bool of_the_norm = i == 5 || i == 6;  // sums over tokens
    EXPECT_TRUE(of_the_norm ? close(three[i], one[i], kFloat32Gradient) : at::equal(three[i], one[i])) << i;
  }
}

TEST_P(GatedScanKernel, EmptyAndStridedInputs) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const auto& shape : std::vector<std::vector<int64_t>>{{0, 5, 3}, {2, 0, 3}}) {
      const at::Tensor none = at::empty(shape, dtype), weight = at::ones({3}, dtype).requires_grad_();
      const at::Tensor initial = at::ones({shape[0], 3}, dtype).requires_grad_();
      const GatedScan out = gated_scan(none, none, none, {weight, {}}, {initial});
      EXPECT_EQ(out.units.sizes(), at::IntArrayRef(shape));
      for (const at::Tensor& d : torch::autograd::grad({out.units.sum() + out.h.sum()}, {weight, initial}))
        EXPECT_TRUE((d == 0).all().item<bool>());
    }
  const auto in = inputs_of({2, 30, 6});
  const at::Tensor strided = in[0].transpose(1, 2).contiguous().transpose(1, 2);
  const ScanNorm norm{in[3], in[4]};
  EXPECT_TRUE(at::equal(gated_scan(strided, in[1], in[2], norm).units, gated_scan(in[0], in[1], in[2], norm).units));
}

TEST(GatedScanDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(7);
  for (const auto& [reverse, silu] : {std::pair{false, false}, {true, false}, {false, true}}) {
    const Case c{2, 5, 3, true, true, true, true, reverse, silu};
    const GatedScanOptions marks{{}, key_mask_of(c), some_tokens(c, true), reverse, silu};
    const auto scan = [&](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
      GatedScanOptions options = marks;
      options.initial = x[5];
      const GatedScan out = gated_scan(x[0], x[1], x[2], {x[3], x[4]}, options);
      return {out.units, out.h};
    };
    std::vector<at::Tensor> in;
    for (const at::Tensor& x : inputs_of(c)) in.push_back(x.to(at::kDouble));
    EXPECT_TRUE(gradients_match(scan, in, true));
  }
}

TEST(GatedScanErrors, AreSentences) {
  const at::Tensor u = at::randn({2, 5, 3}), weight = at::ones(3);
  const auto expect = [](auto&& call, const char* text) { EXPECT_TRUE(fails_with(text, call)); };
  expect([&] { gated_scan(u[0], u[0], u[0], {weight, {}}); }, "gated_scan: expected u of shape [B, T, C], got [5, 3]");
  expect([&] { gated_scan(u, u.slice(1, 1), u, {weight, {}}); },
         "gated_scan: expected decay_logit of shape [2, 5, 3] to match u [2, 5, 3], got [2, 4, 3]");
  expect([&] { gated_scan(u, u, u, {at::ones(4), {}}); },
         "gated_scan: expected norm_weight of shape [3] to match u [2, 5, 3], got [4]");
  expect([&] { gated_scan(u, u, u, {weight, {}}, {{}, at::ones({2, 5})}); },
         "gated_scan: expected key_mask as Bool [2, 5] (true = a real token), got Float [2, 5]");
  expect([&] { gated_scan(u.to(at::kHalf), u, u, {weight, {}}); }, "expected float32, bfloat16 or float64, got Half");
}

}  // namespace
}  // namespace fem::testing
