// Ranges, long sequences and what the two special cases are known to equal.
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "fem/ops/channel_read.h"
#include "ops/channel_read/channel_read.h"
#include "support/channel_cases.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using namespace channel;

using ChannelReadIdentities = KernelTest;
FEM_ON_EVERY_ISA(ChannelReadIdentities);

TEST_P(ChannelReadIdentities, ValuesUpToTheCapStayFiniteAndExact) {
  // Every value sits at plus or minus the cap, the high ones where the weights are smallest: in the end if weights
  // fall, in the beginning if they rise or what is past decays. Weights spread over more than float32's range.
  const int64_t tokens = 260;
  const at::Tensor slope = at::arange(tokens, at::kDouble).view({1, tokens, 1, 1}) * -0.5;
  const at::Tensor steady = at::full({1, tokens, 1, 6}, -0.5, at::kDouble);
  struct Shape {
    const char* name;
    OptionalTensor log_weight, log_decay;
    bool late;
  };
  for (const Shape& shape : std::vector<Shape>{{"falling", slope.expand({1, tokens, 1, 6}), std::nullopt, true},
                                               {"rising", -slope.expand({1, tokens, 1, 6}), std::nullopt, false},
                                               {"decaying", std::nullopt, steady, false},
                                               {"both", -slope.expand({1, tokens, 1, 6}), steady * 0.5, false}}) {
    SCOPED_TRACE(shape.name);
    ChannelInputs drawn{};
    drawn.beta = at::full({1, 6}, 2.0, at::kDouble);
    const at::Tensor high = at::rand({1, tokens, 1, 6}) < 0.1;
    high.slice(1, shape.late ? 0 : 40, shape.late ? tokens - 40 : tokens).zero_();
    drawn.value = at::full({1, tokens, 1, 6}, -20.0, at::kDouble).masked_fill(high, 20);
    drawn.log_weight = shape.log_weight;
    drawn.log_decay = shape.log_decay;
    const ChannelInputs in = cast(drawn, at::kFloat), exact = cast(drawn, at::kDouble);
    RecurrentRead grads = random_gradients(by_definition(exact));
    grads.state = at::Tensor();
    const Result expected = run(by_definition, exact, grads), actual = run(by_operator, in, grads);
    EXPECT_TRUE(close(actual.read.mean, expected.read.mean, kFloat32));
    EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, kFloat32));
    // Gradients are sums of up to `tokens` terms of order one, for beta times the value, that cancel almost entirely.
    for (const auto& [name, gradient] : expected.gradients)
      EXPECT_TRUE(close(actual.gradients.at(name), gradient, kFloat32Gradient, name == "beta" ? 20.0 * tokens : tokens))
          << name;
  }
}

TEST_P(ChannelReadIdentities, AFactorBelowFloat32CountsWhereItMeetsALargeEnergy) {
  // e^-89 in one step is no normal float32, but e^{beta v} is e^82 larger on its side.
  const int64_t tokens = 80, step = 70;
  const at::Tensor flat = at::zeros({1, tokens, 1, 3}, at::kDouble);
  const auto later = [&](const at::Tensor& x, double change) {
    at::Tensor changed = x.clone();
    changed.slice(1, step).fill_(change);
    return changed;
  };
  at::Tensor once = flat.clone();
  once.select(1, step).fill_(-89);
  struct Shape {
    const char* name;
    OptionalTensor log_weight, log_decay;
    bool high_first;
  };
  for (const Shape& shape : std::vector<Shape>{{"a rise", later(flat, 89), std::nullopt, true},
                                               {"a fall", later(flat, -89), std::nullopt, false},
                                               {"a decay", std::nullopt, once, true},
                                               {"a fall and decays", later(flat, -89), flat, false}}) {
    SCOPED_TRACE(shape.name);
    ChannelInputs drawn{};
    drawn.beta = at::full({1, 3}, 2.0, at::kDouble);
    drawn.value = shape.high_first ? later(flat + 20.5, -20.5) : later(flat - 20.5, 20.5);
    drawn.log_weight = shape.log_weight;
    drawn.log_decay = shape.log_decay;
    const ChannelInputs in = cast(drawn, at::kFloat), exact = cast(drawn, at::kDouble);
    RecurrentRead grads = random_gradients(by_definition(exact));
    grads.state = at::Tensor();
    const Result expected = run(by_definition, exact, grads), actual = run(by_operator, in, grads);
    EXPECT_TRUE(close(actual.read.free_energy.slice(1, step), expected.read.free_energy.slice(1, step), kFloat32));
    for (const auto& [name, gradient] : expected.gradients)
      EXPECT_TRUE(close(actual.gradients.at(name), gradient, kFloat32Gradient, name == "beta" ? 20.5 * tokens : 1))
          << name;
  }
}

TEST_P(ChannelReadIdentities, HugeWeightsStayExact) {
  // Multiples of 2 up to 1e4, so that float32 and float64 see the same differences.
  for (const bool decays : {false, true}) {
    ChannelInputs drawn = make_inputs({"", 1, 300, 1, 5, true, decays});
    drawn.log_weight = at::randint(-5000, 5001, drawn.value.sizes(), at::kDouble) * 2;
    if (decays) drawn.log_decay = at::randint(-3000, 1, drawn.value.sizes(), at::kDouble);
    const ChannelInputs in = cast(drawn, at::kFloat), exact = cast(drawn, at::kDouble);
    const RecurrentRead grads = random_gradients(by_definition(exact));
    expect_same(run(by_operator, in, grads), run(by_definition, exact, grads), exact, grads, at::kFloat);
  }
}

TEST_P(ChannelReadIdentities, ConstantWeightsGiveTheRunningMean) {
  at::NoGradGuard no_grad;
  const int64_t tokens = 500;
  const at::Tensor value = at::randn({2, tokens, 2, 9}), key = at::full_like(value, -3.25);
  const at::Tensor beta = at::rand({2, 9}) + 0.5, exact = value.to(at::kDouble), b = beta.to(at::kDouble);
  const at::Tensor counts = at::arange(1, tokens + 1, at::kDouble).view({1, -1, 1, 1});
  const RecurrentRead read = aft_read(key, value, beta);
  EXPECT_TRUE(close(read.mean, exact.cumsum(1) / counts, kFloat32Exact));
  EXPECT_TRUE(close(read.free_energy, ((b * exact).exp().cumsum(1) / counts).log() / b, kFloat32));
  EXPECT_TRUE(close(read.log_normalizer, (counts.log() - 3.25).expand_as(value), kFloat32Exact));
}

TEST_P(ChannelReadIdentities, OneDecayAHeadIsLinearAttentionWithConstantFeatures) {
  at::NoGradGuard no_grad;
  const at::Tensor value = at::randn({2, 200, 2, 9}), decay = -at::rand({2, 200, 2}) * 0.3,
                   beta = at::rand({2, 9}) + 0.5;
  // scores [B, H, T, T] of linear attention with features phi(q).phi(k) = 1
  const at::Tensor through = decay.to(at::kDouble).transpose(1, 2).cumsum(-1);
  const at::Tensor scores = (through.unsqueeze(-1) - through.unsqueeze(-2)).exp().tril();
  const at::Tensor p = scores / scores.sum(-1, true), v = value.to(at::kDouble).transpose(1, 2);
  const at::Tensor b = beta.to(at::kDouble).unsqueeze(1);
  const RecurrentRead read = decay_read(value, beta, decay.unsqueeze(-1).expand_as(value));
  EXPECT_TRUE(close(read.mean.transpose(1, 2), at::matmul(p, v), kFloat32));
  EXPECT_TRUE(close(read.free_energy.transpose(1, 2), at::matmul(p, (b * v).exp()).log() / b, kFloat32));
  EXPECT_TRUE(close(read.log_normalizer.transpose(1, 2), scores.sum(-1, true).log().expand_as(v), kFloat32));
}

TEST_P(ChannelReadIdentities, TheEncoderOfWeightsReadsAllTokensAlike) {
  at::NoGradGuard no_grad;
  const at::Tensor key = at::randn({2, 150, 2, 9}), value = at::randn_like(key), beta = at::rand({2, 9}) + 0.5;
  const at::Tensor p = key.to(at::kDouble).softmax(1), v = value.to(at::kDouble), b = beta.to(at::kDouble);
  const RecurrentRead read = aft_read(key, value, beta, {.causal = false});
  EXPECT_TRUE(close(read.mean, (p * v).sum(1, true).expand_as(v), kFloat32));
  EXPECT_TRUE(close(read.free_energy, ((p * (b * v).exp()).sum(1, true).log() / b).expand_as(v), kFloat32));
  EXPECT_FALSE(read.state.defined());
}

TEST_P(ChannelReadIdentities, TheEncoderInFloat32MatchesTheDefinition) {
  for (const Case& c : cases()) {
    if (c.strict || c.initial || c.mean_only || c.tokens > 300) continue;
    SCOPED_TRACE(c.name);
    const ChannelInputs in = cast(make_inputs(c), at::kFloat), exact = cast(in, at::kDouble);
    const auto kernel = [](const ChannelInputs& x) { return by_function(x, /*causal=*/false); };
    const auto definition = [](const ChannelInputs& x) {
      return channel_read_definition(x.value, x.beta, x.log_weight, x.log_decay, options_of(x, false));
    };
    const RecurrentRead grads = random_gradients(definition(exact));
    expect_same(run(kernel, in, grads), run(definition, exact, grads), exact, grads, at::kFloat);
  }
}

// The recurrence of one batch row in float64, for lengths at which the definition is slow.
RecurrentRead recurrence(const ChannelInputs& in) {
  const auto shape = in.value.sizes();
  const int64_t tokens = shape[1], channels = shape[2] * shape[3];
  const auto numbers = [](const OptionalTensor& x, const at::Tensor& like) {
    return x ? x->detach().to(at::kDouble).contiguous() : at::zeros_like(like, at::kDouble);
  };
  const at::Tensor value = numbers(in.value, in.value), weight = numbers(in.log_weight, in.value),
                   decay = numbers(in.log_decay, in.value), beta = numbers(in.beta, in.value);
  RecurrentRead read{{at::empty_like(value), at::empty_like(value)}, at::empty_like(value), {}};
  const auto at = [](const at::Tensor& x) { return x.mutable_data_ptr<double>(); };
  for (int64_t c = 0; c < channels; ++c) {
    double scale = -INFINITY, one = 0, sum = 0, energy = 0;
    for (int64_t i = c; i < tokens * channels; i += channels) {
      const double next = std::max(scale + at(decay)[i], at(weight)[i]);
      const double keep = std::exp(scale + at(decay)[i] - next), add = std::exp(at(weight)[i] - next);
      scale = next;
      one = keep * one + add;
      sum = keep * sum + add * at(value)[i];
      energy = keep * energy + add * std::exp(at(beta)[c] * at(value)[i]);
      at(read.mean)[i] = sum / one;
      at(read.free_energy)[i] = std::log(energy / one) / at(beta)[c];
      at(read.log_normalizer)[i] = scale + std::log(one);
    }
  }
  return read;
}

void expect_recurrence(const ChannelInputs& in) {
  at::NoGradGuard no_grad;
  for (const int threads : {1, 8}) {
    SCOPED_TRACE(threads);
    ScopedThreads scope(threads);
    const RecurrentRead actual = by_operator(in), expected = recurrence(in);
    EXPECT_TRUE(close(actual.mean, expected.mean, kFloat32));
    EXPECT_TRUE(close(actual.free_energy, expected.free_energy, kFloat32));
    EXPECT_TRUE(close(actual.log_normalizer, expected.log_normalizer, kFloat32, /*magnitude=*/1));  // of sums near 1
  }
}

TEST_P(ChannelReadIdentities, AHundredThousandTokensEqualAFloat64Recurrence) {
  const std::vector<int64_t> shape{1, 100000, 1, 3};
  ChannelInputs in{};
  in.value = at::randn(shape);
  in.beta = at::rand({1, 3}) + 0.5;
  in.log_weight = at::randn(shape);
  expect_recurrence(in);
  in.log_weight = at::arange(shape[1]).view({1, -1, 1, 1}).expand(shape) * 1e-4f;  // a new largest at every token
  expect_recurrence(in);
  in.log_weight = std::nullopt;
  for (const float decay : {-1e-4f, -0.03f, -1.0f}) {
    in.log_decay = at::full(shape, decay);
    expect_recurrence(in);
  }
  in.log_decay = at::rand(shape) * -2e-3;
  in.log_weight = at::randn(shape);
  expect_recurrence(in);
}

TEST_P(ChannelReadIdentities, TheMeanOfAConstantIsThatConstantAfterAHundredThousandTokens) {
  at::NoGradGuard no_grad;
  const at::Tensor value = at::tensor({0.1f, -0.7f, 3.3f}).view({1, 1, 1, 3}).expand({1, 100000, 1, 3});
  const at::Tensor beta = at::ones({1, 3});
  for (const RecurrentRead& read : {aft_read(at::randn({1, 100000, 1, 3}), value, beta),
                                    decay_read(value, beta, at::full({1, 100000, 1, 3}, -1e-4f))}) {
    EXPECT_TRUE(close(read.mean, value, kFloat32Exact));
    EXPECT_TRUE(close(read.free_energy, value, kFloat32Exact));
  }
}

TEST_P(ChannelReadIdentities, GradientsOverAHundredThousandTokensAreExact) {
  // The running mean weighs token i by 1/t at every t >= i: dv_i = sum_{t >= i} 1/t, and by symmetry of the last mean
  // dk_i = (v_i - mean) / T.
  const int64_t tokens = 100000;
  const at::Tensor value = at::randn({1, tokens, 1, 2}).requires_grad_(), key = at::zeros_like(value).requires_grad_();
  for (const int threads : {1, 8}) {
    ScopedThreads scope(threads);
    const at::Tensor mean = aft_read(key, value, std::nullopt).mean;
    const at::Tensor counts = at::arange(1, tokens + 1, at::kDouble).view({1, -1, 1, 1});
    const auto all = torch::autograd::grad({mean.sum()}, {value}, {}, /*retain_graph=*/true);
    EXPECT_TRUE(close(all[0], (1 / counts).flip(1).cumsum(1).flip(1).expand_as(value), kFloat32));
    const auto last = torch::autograd::grad({mean.select(1, -1).sum()}, {value, key});
    EXPECT_TRUE(close(last[0], at::full_like(value, 1.0 / tokens), kFloat32));
    const at::Tensor exact = value.detach().to(at::kDouble);
    EXPECT_TRUE(close(last[1], (exact - exact.mean(1, true)) / tokens, kFloat32));
  }
}

TEST_P(ChannelReadIdentities, StrongDecayOverTenThousandTokensKeepsTheLastWeightsExact) {
  const std::vector<int64_t> shape{1, 10000, 1, 3};
  ChannelInputs in{};
  in.value = at::randn(shape);
  in.beta = at::rand({1, 3}) + 0.5;
  in.log_decay = at::full(shape, -5.0f);
  expect_recurrence(in);
  // dmean/dv of the last read is its weights.
  in.value.requires_grad_();
  const at::Tensor mean = by_operator(in).mean.select(1, -1);
  const at::Tensor weights = torch::autograd::grad({mean.sum()}, {in.value})[0].select(3, 0).flatten().flip(0);
  const at::Tensor expected = (at::arange(10000, at::kDouble) * -5).exp() * (1 - std::exp(-5.0));
  EXPECT_TRUE(close(weights.slice(0, 0, 12) / expected.slice(0, 0, 12), at::ones({12}), kFloat32));
}

}  // namespace
}  // namespace fem::testing
