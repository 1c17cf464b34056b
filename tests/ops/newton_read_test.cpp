#include "fem/ops/newton_read.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/softmax_cases.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using NewtonRead = KernelTest;
FEM_ON_EVERY_ISA(NewtonRead);

struct NewtonInputs {
  std::vector<at::Tensor> tensors;  // query, key, value, alpha
  NewtonReadOptions options;
};

constexpr const char* kNames[] = {"query", "key", "value", "alpha"};

NewtonInputs inputs_of(const SoftmaxCase& c, bool of_values, double rho) {
  const SoftmaxInputs in = make_inputs(c);
  NewtonReadOptions options;
  options.of_values = of_values;
  options.rho = rho;
  options.causal = c.causal;
  options.key_mask = in.options.key_mask;
  options.cu_seqlens = in.options.cu_seqlens;
  return {{0.5 * in.query, in.key, in.value, 0.3 * at::randn({c.heads}).to(at::kDouble)}, options};
}

NewtonInputs cast_leaves(const NewtonInputs& in, at::ScalarType dtype) {
  NewtonInputs out{{}, in.options};
  for (const at::Tensor& x : in.tensors) out.tensors.push_back(x.detach().to(dtype).clone().requires_grad_());
  return out;
}

// The read, then the gradients of its product with g.
template <typename Function>
std::vector<at::Tensor> run_newton(Function&& function, const NewtonInputs& in, const at::Tensor& g) {
  const auto& t = in.tensors;
  const at::Tensor read = function(t[0], t[1], t[2], t[3], in.options);
  std::vector<at::Tensor> all = torch::autograd::grad({read}, t, {g.to(read.scalar_type())});
  all.insert(all.begin(), read);
  return all;
}

// Every case of attention without a window, up to so many keys, by keys with and without -q and by values.
template <typename Body>
void every_case(int64_t most_keys, Body&& body) {
  for (const SoftmaxCase& c : softmax_cases()) {
    if (c.window || c.keys > most_keys) continue;
    for (const auto& [of_values, rho] : {std::pair{false, 0.0}, {false, 0.7}, {true, 0.0}}) {
      SCOPED_TRACE(c.name + (of_values ? " by values" : " by keys, rho " + std::to_string(rho)));
      const NewtonInputs in = inputs_of(c, of_values, rho);
      body(c, in, at::randn({c.batch, c.queries, c.heads, c.value_width}));
    }
  }
}

TEST_P(NewtonRead, Float32MatchesTheDefinition) {
  every_case(1000, [](const SoftmaxCase& c, const NewtonInputs& in, const at::Tensor& g) {
    const auto actual = run_newton(newton_read, cast_leaves(in, at::kFloat), g);
    const auto expected = run_newton(newton_read_definition, cast_leaves(in, at::kDouble), g.to(at::kDouble));
    EXPECT_TRUE(close(actual[0], expected[0], kFloat32));
    for (size_t i = 0; i < 4; ++i) {
      SCOPED_TRACE(kNames[i]);
      if (c.one_key() && i != 2)  // the value alone counts
        EXPECT_TRUE(vanishes(actual[i + 1], kFloat32Gradient, 100));
      else
        EXPECT_TRUE(close(actual[i + 1], expected[i + 1], kFloat32Gradient));
    }
  });
}

TEST_P(NewtonRead, Bfloat16IsAsExactAsTheDefinitionInBfloat16) {
  every_case(300, [](const SoftmaxCase& c, const NewtonInputs& in, const at::Tensor& g) {
    const NewtonInputs low = cast_leaves(in, at::kBFloat16), exact = cast_leaves(low, at::kDouble);
    const at::Tensor seed = g.to(at::kBFloat16).to(at::kDouble);
    const auto actual = run_newton(newton_read, low, seed), plain = run_newton(newton_read_definition, low, seed),
               expected = run_newton(newton_read_definition, exact, seed);
    for (size_t i = 0; i < 5; ++i) {
      if (c.one_key() && i != 0 && i != 3) continue;
      EXPECT_TRUE(about_as_exact(actual[i], plain[i], expected[i], kTimesPlainBfloat16)) << i;
    }
  });
}

TEST_P(NewtonRead, AnyNumberOfThreadsGivesTheSameBits) {
  every_case(500, [](const SoftmaxCase&, const NewtonInputs& in, const at::Tensor& g) {
    const NewtonInputs low = cast_leaves(in, at::kFloat);
    const auto with_threads = [&](int threads) {
      const ScopedThreads scope(threads);
      return run_newton(newton_read, low, g);
    };
    const auto one = with_threads(1), three = with_threads(3);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], three[i])) << i;
  });
}

TEST_P(NewtonRead, StridedInputsGiveTheSame) {
  const NewtonInputs in = cast_leaves(inputs_of({"", 2, 70, 70, 3, 16, 8}, false, 0.5), at::kFloat);
  const at::Tensor g = at::randn({2, 70, 3, 8});
  NewtonInputs strided = in;
  strided.tensors[0] = in.tensors[0].transpose(1, 2).contiguous().transpose(1, 2);
  strided.tensors[1] = at::stack({in.tensors[1], in.tensors[1]}, -1).flatten(-2).slice(-1, 0, std::nullopt, 2);
  strided.tensors[2] = at::cat({in.tensors[2], in.tensors[2]}, 3).slice(3, 0, 8);
  const auto expected = run_newton(newton_read, in, g), actual = run_newton(newton_read, strided, g.expand_as(g));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(actual[i], expected[i])) << i;
}

TEST_P(NewtonRead, EmptyInputsGiveEmptyOrZeroReads) {
  for (const auto& [batch, queries, keys] :
       std::vector<std::array<int64_t, 3>>{{0, 5, 5}, {2, 0, 0}, {2, 0, 7}, {2, 9, 0}, {2, 2, 0}})
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const NewtonInputs in = cast_leaves(inputs_of({"", batch, queries, keys, 2, 8, 4, false}, false, 0.5), dtype);
      for (const at::Tensor& x : run_newton(newton_read, in, at::ones({batch, queries, 2, 4}).to(dtype)))
        EXPECT_TRUE(at::equal(x, at::zeros_like(x)));
    }
}

TEST_P(NewtonRead, WhatMaskedTokensHoldHasNoInfluenceEvenNaN) {
  for (const int64_t queries : {3, 130})
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      NewtonInputs in = cast_leaves(inputs_of({"", 2, queries, 130, 2, 8, 4}, false, 0.5), dtype);
      in.options.key_mask = at::rand({2, 130}) > 0.3;
      in.options.key_mask->select(0, 1).zero_();  // and a row that sees nothing
      const at::Tensor g = at::randn({2, queries, 2, 4}).to(dtype);
      const auto expected = run_newton(newton_read, in, g);
      EXPECT_TRUE((expected[0].select(0, 1) == 0).all().item<bool>());
      const at::Tensor hidden = in.options.key_mask->logical_not().view({2, 130, 1, 1});
      for (const int i : {1, 2}) in.tensors[i] = in.tensors[i].detach().masked_fill(hidden, NAN).requires_grad_();
      const auto actual = run_newton(newton_read, in, g);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::equal(actual[i], expected[i])) << i;
        EXPECT_TRUE(actual[i].isfinite().all().item<bool>()) << i;
      }
    }
}

TEST_P(NewtonRead, FutureTokensHaveNoInfluenceAndNoGradient) {
  const int64_t length = 230, now = 101;
  const NewtonInputs in = cast_leaves(inputs_of({"", 1, length, length, 2, 16, 8}, false, 0.5), at::kFloat);
  at::Tensor g = at::randn({1, length, 2, 8});
  g.slice(1, now).zero_();
  const auto before = run_newton(newton_read, in, g);
  for (const int i : {2, 3}) EXPECT_TRUE((before[i].slice(1, now) == 0).all().item<bool>());
  const at::Tensor key = in.tensors[1].detach().clone(), value = in.tensors[2].detach().clone();
  key.slice(1, now).normal_();
  value.slice(1, now).normal_();
  const at::Tensor after = newton_read(in.tensors[0], key, value, in.tensors[3], in.options);
  EXPECT_TRUE(at::equal(after.slice(1, 0, now), before[0].slice(1, 0, now)));
  EXPECT_FALSE(at::equal(after.slice(1, now), before[0].slice(1, now)));
}

// Properties of the definition, in float64.
struct Exact {
  Exact() { at::manual_seed(7); }
  at::Tensor query = draw(6), key = draw(6), value = draw(4), alpha = at::tensor({0.3, -0.2}, at::kDouble);
  static at::Tensor draw(int64_t width) { return at::randn({2, 9, 2, width}, at::kDouble); }

  at::Tensor attention(const at::Tensor& q) const { return softmax_read_definition(q, key, value, std::nullopt).mean; }
  at::Tensor read(const NewtonReadOptions& options = {}) const {
    return newton_read(query, key, value, alpha, options);
  }
};

TEST(NewtonReadProperties, WithoutAlphaItIsAttention) {
  Exact in;
  in.alpha.zero_();
  for (const bool of_values : {false, true})
    EXPECT_TRUE(close(in.read({.of_values = of_values}), in.attention(in.query), kFloat64));
}

TEST(NewtonReadProperties, TheFirstTokenReadsItself) {
  const Exact in;
  EXPECT_TRUE(close(in.read({.rho = 0.5}).select(1, 0), in.value.select(1, 0), kFloat64));
}

TEST(NewtonReadProperties, WeightsSumToOne) {
  Exact in;
  in.value = in.value.select(1, 3).unsqueeze(1).expand_as(in.value).contiguous();
  EXPECT_TRUE(close(in.read({.rho = 0.5}), in.value, kFloat64));
}

TEST(NewtonReadProperties, EqualKeysReadTheMeanSoFar) {
  Exact in;
  in.key = in.key.select(1, 3).unsqueeze(1).expand_as(in.key).contiguous();
  const at::Tensor count = at::arange(1, 10, at::kDouble).view({1, 9, 1, 1});
  EXPECT_TRUE(close(in.read({.rho = 0.5}), in.value.cumsum(1) / count, kFloat64));
}

TEST(NewtonReadProperties, SpacesAgreeWhereValuesAreKeys) {
  Exact in;
  in.value = in.key;
  EXPECT_TRUE(close(in.read({.of_values = true}), in.read(), kFloat64));
}

// o = Attn(q) + c dAttn/dq (m - rho q): what is left of Attn(q + c (m - rho q)) is of second order in c.
TEST(NewtonReadProperties, IsTheFirstOrderOfAttentionAtAShiftedQuery) {
  Exact in;
  const double rho = 0.5, scale = 1 / std::sqrt(6.0);
  const at::Tensor m = softmax_read_definition(in.query, in.key, in.key, std::nullopt).mean;
  const auto left = [&](double c) {
    in.alpha.fill_(c * scale);
    return (in.read({.rho = rho}) - in.attention(in.query + c * (m - rho * in.query))).abs().max().item<double>();
  };
  EXPECT_NEAR(left(1e-2) / left(1e-3), 100, 5);
}

TEST(NewtonReadProperties, GradientsOfBothOrdersMatchDifferences) {
  at::manual_seed(7);
  const auto draw = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  const std::vector<at::Tensor> inputs{draw({1, 4, 2, 3}), draw({1, 5, 2, 3}), draw({1, 5, 2, 2}), draw({2})};
  for (const auto& [of_values, rho] : {std::pair{false, 0.6}, {true, 0.0}})
    EXPECT_TRUE(gradients_match(
        [=](const std::vector<at::Tensor>& x) {
          return std::vector{newton_read(x[0], x[1], x[2], x[3], {.of_values = of_values, .rho = rho})};
        },
        inputs, /*second_order=*/true));
}

TEST(NewtonReadErrors, AreSentences) {
  const at::Tensor q = at::randn({2, 5, 3, 4}), v = at::randn({2, 5, 3, 6}), alpha = at::ones({3});
  const auto fails = [&](const std::string& text, const at::Tensor& query, const at::Tensor& key,
                         const at::Tensor& scale, const NewtonReadOptions& options = {}) {
    EXPECT_TRUE(fails_with(text, [&] { newton_read(query, key, v, scale, options); }));
  };
  fails("newton_read: expected query of shape [B, T, H, K], got [5, 3, 4]", q[0], q, alpha);
  fails("newton_read: expected key of shape [B=2, T, H=3, K=4] to match query, got [2, 5, 3, 6]", q, v, alpha);
  fails("newton_read: expected alpha", q, q, at::ones({4}));
  fails("newton_read: expected rho = 0 with of_values, got 0.5", q, q, alpha, {.of_values = true, .rho = 0.5});
  fails("newton_read: expected rho to be a number, got nan", q, q, alpha, {.rho = NAN});
}

}  // namespace
}  // namespace fem::testing
