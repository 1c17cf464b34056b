#include "fem/ops/softmax_read.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/softmax_run.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using SoftmaxRead = KernelTest;
using Result = SoftmaxResult;
FEM_ON_EVERY_ISA(SoftmaxRead);

// Runs case c by kernel in dtype and by the definition in float64 on the same (rounded) inputs, and compares all.
void expect_kernel_equals_definition(const SoftmaxCase& c, at::ScalarType dtype) {
  SCOPED_TRACE(c.name);
  const SoftmaxInputs low = cast(make_inputs(c), dtype);
  const SoftmaxInputs exact = cast(low, at::kDouble);
  const at::Tensor g1 = at::randn({c.batch, c.queries, c.heads, c.value_width}).to(dtype).to(at::kDouble);
  const at::Tensor g2 = at::randn_like(g1).to(dtype).to(at::kDouble);
  const Result expected = run(softmax_read_definition, exact, g1, g2);
  const Result actual = run(fem::softmax_read, low, g1, g2);
  expect_close(actual, expected, dtype, exact.beta, g2, c.one_key());
}

TEST_P(SoftmaxRead, Float32MatchesTheDefinition) {
  for (const SoftmaxCase& c : softmax_cases()) expect_kernel_equals_definition(c, at::kFloat);
}

TEST_P(SoftmaxRead, Bfloat16IsAsExactAsTheDefinitionInBfloat16) {
  for (const SoftmaxCase& c : softmax_cases()) {
    SCOPED_TRACE(c.name);
    const SoftmaxInputs in = cast(make_inputs(c), at::kBFloat16), exact = cast(in, at::kDouble);
    const at::Tensor g1 = at::randn({c.batch, c.queries, c.heads, c.value_width}).to(at::kBFloat16).to(at::kDouble);
    const at::Tensor g2 = at::randn_like(g1).to(at::kBFloat16).to(at::kDouble);
    expect_as_exact(run(fem::softmax_read, in, g1, g2), run(softmax_read_definition, in, g1, g2),
                    run(softmax_read_definition, exact, g1, g2), exact, g2);
  }
}

TEST_P(SoftmaxRead, Float64RunsTheDefinition) {
  for (const SoftmaxCase& c : softmax_cases())
    if (c.keys <= 300) expect_kernel_equals_definition(c, at::kDouble);
}

TEST_P(SoftmaxRead, OneThreadGivesTheSameReadBitwiseAndTheSameGradients) {
  for (const SoftmaxCase& c : softmax_cases()) {
    SCOPED_TRACE(c.name);
    const SoftmaxInputs in = cast(make_inputs(c), at::kFloat);
    const at::Tensor g = at::randn({c.batch, c.queries, c.heads, c.value_width});
    const auto with_threads = [&](int threads) {
      ScopedThreads scope(threads);
      return run(fem::softmax_read, in, g, g);
    };
    const Result one = with_threads(1), two = with_threads(2), three = with_threads(3);
    EXPECT_TRUE(at::equal(one.read.mean, two.read.mean) && at::equal(one.read.mean, three.read.mean));
    EXPECT_TRUE(!in.beta || at::equal(one.read.free_energy, two.read.free_energy));
    for (size_t i = 0; i < one.gradients.size(); ++i) {
      if (c.one_key() && i != 2) continue;  // of one key the value alone counts
      EXPECT_TRUE(close(two.gradients[i], one.gradients[i], kFloat32Gradient)) << i;
      EXPECT_TRUE(close(three.gradients[i], one.gradients[i], kFloat32Gradient)) << i;
    }
    EXPECT_TRUE(at::equal(with_threads(2).gradients[0], two.gradients[0])) << "a second run differs";
  }
}

TEST_P(SoftmaxRead, StridedInputsGiveTheSame) {
  const SoftmaxInputs in = cast(make_inputs({"", 2, 70, 70, 3, 16, 8}), at::kFloat);
  const at::Tensor g = at::randn({2, 70, 3, 8});
  const Result expected = run(fem::softmax_read, in, g, g);
  SoftmaxInputs strided = in;
  const auto every_second = [](const at::Tensor& x) {
    return at::stack({x, x}, -1).flatten(-2).slice(-1, 0, std::nullopt, 2);
  };
  strided.query = in.query.transpose(1, 2).contiguous().transpose(1, 2);
  strided.key = every_second(in.key);
  strided.value = at::cat({in.value, in.value}, 3).slice(3, 0, 8);
  const Result actual = run(fem::softmax_read, strided, at::ones({1}).expand_as(g) * g, g);
  EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i]));
}

TEST_P(SoftmaxRead, EmptyInputsGiveEmptyOrZeroReads) {
  for (const auto& [batch, queries, keys] :
       std::vector<std::array<int64_t, 3>>{{0, 5, 5}, {2, 0, 0}, {2, 0, 7}, {2, 9, 0}, {2, 2, 0}}) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const SoftmaxInputs in = cast(make_inputs({"", batch, queries, keys, 2, 8, 4, false}), dtype);
      const at::Tensor g = at::ones({batch, queries, 2, 4});
      const Result result = run(fem::softmax_read, in, g, g);
      EXPECT_EQ(result.read.mean.sizes(), g.sizes());
      EXPECT_TRUE(at::equal(result.read.mean, at::zeros_like(result.read.mean)));
      EXPECT_TRUE(at::equal(result.read.free_energy, at::zeros_like(result.read.mean)));
      for (const at::Tensor& gradient : result.gradients) EXPECT_TRUE(at::equal(gradient, at::zeros_like(gradient)));
    }
  }
}

TEST_P(SoftmaxRead, FullyMaskedRowsReadZeroWithZeroGradients) {
  for (const int64_t queries : {3, 120}) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      SoftmaxInputs in = cast(make_inputs({"", 2, queries, 120, 2, 8, 4, false}), dtype);
      in.options.key_mask = at::ones({2, 120}, at::kBool);
      in.options.key_mask->select(0, 1).zero_();
      const at::Tensor g = at::randn({2, queries, 2, 4});
      const Result result = run(fem::softmax_read, in, g, g);
      EXPECT_TRUE((result.read.mean.select(0, 1) == 0).all().item<bool>());
      EXPECT_TRUE((result.read.free_energy.select(0, 1) == 0).all().item<bool>());
      for (int i = 0; i < 3; ++i) EXPECT_TRUE((result.gradients[i].select(0, 1) == 0).all().item<bool>());
      EXPECT_TRUE(result.gradients[3].isfinite().all().item<bool>());
    }
  }
}

TEST_P(SoftmaxRead, WhatMaskedTokensHoldHasNoInfluenceEvenNaN) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    SoftmaxInputs in = cast(make_inputs({"", 2, 130, 130, 2, 8, 4, true, std::nullopt, true}), dtype);
    const at::Tensor g = at::randn({2, 130, 2, 4});
    const Result expected = run(fem::softmax_read, in, g, g);
    const at::Tensor hidden = in.options.key_mask->logical_not().view({2, 130, 1, 1});
    in.key = in.key.detach().masked_fill(hidden, NAN).requires_grad_();
    in.value = in.value.detach().masked_fill(hidden, NAN).requires_grad_();
    const Result actual = run(fem::softmax_read, in, g, g);
    EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i]));
  }
}

TEST_P(SoftmaxRead, FutureTokensHaveNoInfluenceAndNoGradient) {
  const int64_t length = 230, now = 101;
  SoftmaxInputs in = cast(make_inputs({"", 1, length, length, 2, 16, 8}), at::kFloat);
  at::Tensor g = at::randn({1, length, 2, 8});
  g.slice(1, now).zero_();
  const Result before = run(fem::softmax_read, in, g, g);
  for (const int i : {1, 2}) EXPECT_TRUE((before.gradients[i].slice(1, now) == 0).all().item<bool>());
  in.key = in.key.detach().clone();
  in.value = in.value.detach().clone();
  in.key.slice(1, now).normal_();
  in.value.slice(1, now).normal_();
  const fem::SoftmaxRead after = fem::softmax_read(in.query, in.key, in.value, in.beta, in.options);
  EXPECT_TRUE(at::equal(after.free_energy.slice(1, 0, now), before.read.free_energy.slice(1, 0, now)));
  EXPECT_FALSE(at::equal(after.free_energy.slice(1, now), before.read.free_energy.slice(1, now)));
}

TEST_P(SoftmaxRead, ValuesUpToTheCapStayFiniteAndExact) {
  // Every value sits at plus or minus the cap, and a query's scores spread over more than float32's range of weights.
  const int64_t length = 260;
  SoftmaxInputs in = make_inputs({"", 1, length, length, 1, 4, 6, false});
  in.query = at::zeros_like(in.query);
  in.key = at::zeros_like(in.key);
  in.query.select(3, 0).fill_(2);
  in.key.select(3, 0).copy_(at::arange(length, at::kDouble).view({1, length, 1}) * -0.5);  // scores 0 ... -129.5
  in.beta = at::full({1, 6}, 2.0, at::kDouble);
  in.value = at::where(at::rand_like(in.value) > 0.1, -20.0, 20.0);
  in.value.slice(1, 0, length - 40).fill_(-20);  // the high values are where the weights are smallest
  const at::Tensor g = at::randn({1, length, 1, 6}).to(at::kDouble);
  const Result expected = run(softmax_read_definition, cast(in, at::kDouble), g, g);
  const Result actual = run(fem::softmax_read, cast(in, at::kFloat), g, g);
  EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, kFloat32));
  // Gradients are sums of up to `length` terms of order one, for beta times the value, that cancel almost entirely.
  for (size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], kFloat32Gradient, i == 3 ? 20.0 * length : length))
        << i;
}

TEST_P(SoftmaxRead, LargeScoresStayFiniteAndExact) {
  // Scores are exact multiples of 2 up to 1e4, so that float32 and float64 see the same ones.
  const int64_t length = 300;
  SoftmaxInputs in = make_inputs({"", 1, length, length, 1, 2, 5});
  in.query = at::full_like(in.query, 1.0);
  in.key = at::randint(-2500, 2501, in.key.sizes(), at::kDouble) * 2;
  in.options.scale = 1.0;
  const at::Tensor g = at::randn({1, length, 1, 5}).to(at::kDouble);
  const Result expected = run(softmax_read_definition, cast(in, at::kDouble), g, g);
  const Result actual = run(fem::softmax_read, cast(in, at::kFloat), g, g);
  EXPECT_TRUE(close(actual.read.mean, expected.read.mean, kFloat32));
  EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, kFloat32));
  EXPECT_TRUE(close(actual.gradients[2], expected.gradients[2], kFloat32Gradient));
  for (const at::Tensor& gradient : actual.gradients) EXPECT_TRUE(gradient.isfinite().all().item<bool>());
}

TEST_P(SoftmaxRead, ThirtyTwoThousandTokensMatchTheDefinition) {
  // All queries by kernel; the definition can afford the last ones.
  const int64_t length = 32768, last = 8;
  const SoftmaxInputs in = cast(make_inputs({"", 1, length, length, 1, 4, 2}), at::kFloat);
  const fem::SoftmaxRead actual = fem::softmax_read(in.query, in.key, in.value, in.beta, in.options);
  const SoftmaxInputs exact = cast(in, at::kDouble);
  const fem::SoftmaxRead expected =
      softmax_read_definition(exact.query.slice(1, length - last), exact.key, exact.value, exact.beta);
  EXPECT_TRUE(actual.free_energy.isfinite().all().item<bool>());
  EXPECT_TRUE(close(actual.mean.slice(1, length - last), expected.mean, kFloat32));
  EXPECT_TRUE(close(actual.free_energy.slice(1, length - last), expected.free_energy, kFloat32));
}

TEST_P(SoftmaxRead, WithoutBetaEqualsTorchAttention) {
  const SoftmaxInputs in =
      cast(make_inputs({"", 2, 150, 150, 2, 16, 12, true, std::nullopt, false, {}, true}), at::kFloat);
  const at::Tensor g = at::randn({2, 150, 2, 12});
  const Result actual = run(fem::softmax_read, in, g, g);
  const at::Tensor expected = at::scaled_dot_product_attention(in.query.transpose(1, 2), in.key.transpose(1, 2),
                                                               in.value.transpose(1, 2), {}, 0.0, true)
                                  .transpose(1, 2);
  EXPECT_TRUE(close(actual.read.mean, expected, kFloat32));
  const auto gradients = torch::autograd::grad({expected}, {in.query, in.key, in.value}, {g});
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(close(actual.gradients[i], gradients[i], kFloat32Gradient));
}

TEST_P(SoftmaxRead, NaNReachesTheOutputsItMust) {
  const SoftmaxInputs in = make_inputs({"", 1, 40, 40, 1, 8, 4});
  const auto poisoned = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return fem::softmax_read(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), in.beta->to(at::kFloat)).free_energy;
  };
  at::Tensor key = in.key.clone(), value = in.value.clone();
  key.select(1, 20).fill_(NAN);
  value.select(1, 20).fill_(NAN);
  for (const at::Tensor& out : {poisoned(in.query, key, in.value), poisoned(in.query, in.key, value)}) {
    EXPECT_TRUE(out.slice(1, 20).isnan().all().item<bool>());
  }
}

TEST(SoftmaxReadDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(3);
  for (const SoftmaxCase& c : std::vector<SoftmaxCase>{{"causal", 1, 5, 5, 2, 3, 2},
                                                       {"masked", 2, 4, 4, 1, 2, 2, false, std::nullopt, true},
                                                       {"packed", 1, 6, 6, 1, 2, 2, true, 2, false, {0, 2, 6}}}) {
    SCOPED_TRACE(c.name);
    const SoftmaxInputs in = make_inputs(c);
    const auto read = [&](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
      const fem::SoftmaxRead out = fem::softmax_read(x[0], x[1], x[2], x[3], in.options);
      return {out.mean, out.free_energy};
    };
    EXPECT_TRUE(gradients_match(read, {in.query, in.key, in.value, *in.beta}, /*second_order=*/true));
    const auto definition = [&](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
      const fem::SoftmaxRead out = softmax_read_definition(x[0], x[1], x[2], x[3], in.options);
      return {out.mean, out.free_energy};
    };
    EXPECT_TRUE(gradients_match(definition, {in.query, in.key, in.value, *in.beta}));
  }
}

}  // namespace
}  // namespace fem::testing
