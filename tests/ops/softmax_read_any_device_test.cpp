// softmax_read by torch's attention: what devices without kernels of their own run, here on the CPU.
#include "ops/softmax_read/softmax_read.h"
#include "support/any_device.h"
#include "support/error_text.h"
#include "support/kernel_test.h"
#include "support/softmax_run.h"

namespace fem::testing {
namespace {

class SoftmaxReadAnywhere : public ::testing::Test {
 protected:
  SoftmaxReadAnywhere() { at::manual_seed(7); }

 private:
  PoisonedMemory poison_;
};

// Blocks end inside these; those of softmax_cases() are shorter.
const std::vector<SoftmaxCase> kLongCases{
    {"many_blocks_masked", 1, 700, 700, 2, 16, 8, true, std::nullopt, true},
    {"triangle_then_band", 1, 900, 900, 1, 12, 8, true, 300},
    {"long_packed", 1, 1000, 1000, 1, 8, 4, true, std::nullopt, false, {0, 400, 400, 403, 1000}},
    {"long_packed_encoder_window", 1, 800, 800, 1, 8, 4, false, 290, false, {0, 500, 800}},
    {"long_packed_encoder", 1, 800, 800, 1, 8, 4, false, std::nullopt, false, {0, 500, 800}},
    {"long_continuation", 2, 300, 700, 1, 16, 8},
    {"many_more_queries_than_keys", 1, 700, 300, 1, 8, 4},
    {"key_wider_than_values", 1, 300, 300, 2, 40, 3},
    {"values_wider_than_key", 1, 300, 300, 2, 3, 21},
};

void expect_attention_equals_definition(const SoftmaxCase& c, at::ScalarType dtype) {
  SCOPED_TRACE(c.name);
  const SoftmaxInputs low = cast(make_inputs(c), dtype), exact = cast(low, at::kDouble);
  const at::Tensor g1 = at::randn({c.batch, c.queries, c.heads, c.value_width}).to(dtype).to(at::kDouble);
  const at::Tensor g2 = at::randn_like(g1).to(dtype).to(at::kDouble);
  const SoftmaxResult expected = run(softmax_read_definition, exact, g1, g2), actual = run(attention_read, low, g1, g2);
  const Tolerance forward = forward_tolerance(dtype), backward = gradient_tolerance(dtype);
  EXPECT_TRUE(close(actual.read.mean, expected.read.mean, forward));
  EXPECT_TRUE(close(actual.read.log_normalizer, expected.read.log_normalizer, forward));
  if (exact.beta) {
    EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, forward));
  }
  const char* names[] = {"query", "key", "value", "beta"};
  // Where a query sees one key its score has no influence: terms of the size of dv cancel. That of beta is a difference
  // of two sums.
  const bool one_key = c.keys == 1 || (c.causal && c.window == 1);
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    SCOPED_TRACE(names[i]);
    const double dv = expected.gradients[2].abs().max().item<double>();
    if (one_key && i < 2) {
      EXPECT_LE(actual.gradients[i].abs().max().item<double>(), backward.bound * dv);
    } else {
      const double of_beta =
          i < 3 ? 0 : (g2 * expected.read.free_energy / *exact.beta).abs().sum({0, 1}).max().item<double>();
      EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], backward, of_beta));
    }
  }
}

void expect_all_cases(at::ScalarType dtype) {
  for (const SoftmaxCase& c : softmax_cases()) expect_attention_equals_definition(c, dtype);
  for (const SoftmaxCase& c : kLongCases) expect_attention_equals_definition(c, dtype);
}

TEST_F(SoftmaxReadAnywhere, Float64MatchesTheDefinition) { expect_all_cases(at::kDouble); }
TEST_F(SoftmaxReadAnywhere, Float32MatchesTheDefinition) { expect_all_cases(at::kFloat); }
TEST_F(SoftmaxReadAnywhere, Bfloat16MatchesTheDefinition) { expect_all_cases(at::kBFloat16); }

TEST_F(SoftmaxReadAnywhere, WithoutAFusedKernelProductsMatchTheDefinition) {
  const WithoutFusedAttention by_products;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) expect_all_cases(dtype);
}

TEST_F(SoftmaxReadAnywhere, SmallBetaKeepsItsDigits) {
  // e^{beta v} rounded as it is would leave F an error of 2^-9 / beta in bfloat16, 2^-24 / beta in float32.
  for (const double beta : {0.001, 0.01, 0.1}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      SoftmaxInputs in = make_inputs({"", 2, 300, 300, 2, 16, 8});
      in.beta = at::full({2, 8}, beta, at::kDouble);
      in.beta->select(1, 3).fill_(2);  // a channel with the other offset beside them
      const SoftmaxInputs low = cast(in, dtype), exact = cast(low, at::kDouble);
      const at::Tensor g = at::randn({2, 300, 2, 8}).to(dtype).to(at::kDouble);
      const SoftmaxResult expected = run(softmax_read_definition, exact, g, g), actual = run(attention_read, low, g, g);
      EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, forward_tolerance(dtype))) << beta;
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], gradient_tolerance(dtype))) << beta << " " << i;
    }
  }
}

TEST_F(SoftmaxReadAnywhere, ValuesAtTheCapStayFiniteAndExact) {
  SoftmaxInputs in = make_inputs({"", 1, 260, 260, 1, 4, 6});
  in.beta = at::full({1, 6}, 2.0, at::kDouble);
  in.value = at::where(at::rand_like(in.value) > 0.2, -20.0, 20.0);
  const at::Tensor g = at::randn({1, 260, 1, 6}).to(at::kDouble);
  const SoftmaxResult expected = run(softmax_read_definition, cast(in, at::kDouble), g, g);
  const SoftmaxResult actual = run(attention_read, cast(in, at::kFloat), g, g);
  EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, kFloat32));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], kFloat32Gradient, i == 3 ? 20.0 * 260 : 0)) << i;
}

TEST_F(SoftmaxReadAnywhere, EmptyInputsGiveEmptyOrZeroReads) {
  for (const auto& [batch, queries, keys] :
       std::vector<std::array<int64_t, 3>>{{0, 5, 5}, {2, 0, 0}, {2, 0, 7}, {2, 9, 0}}) {
    const SoftmaxInputs in = cast(make_inputs({"", batch, queries, keys, 2, 8, 4, false}), at::kFloat);
    const at::Tensor g = at::ones({batch, queries, 2, 4});
    const SoftmaxResult result = run(attention_read, in, g, g);
    EXPECT_TRUE(at::equal(result.read.mean, at::zeros_like(g)));
    EXPECT_TRUE(at::equal(result.read.free_energy, at::zeros_like(g)));
    for (const at::Tensor& gradient : result.gradients) EXPECT_TRUE(at::equal(gradient, at::zeros_like(gradient)));
  }
}

TEST_F(SoftmaxReadAnywhere, WhatMaskedTokensHoldHasNoInfluenceEvenNaN) {
  SoftmaxInputs in = cast(make_inputs({"", 2, 130, 130, 2, 8, 4, true, std::nullopt, true}), at::kFloat);
  in.options.key_mask->select(0, 1).zero_();  // and a row that sees nothing at all
  const at::Tensor g = at::randn({2, 130, 2, 4});
  const SoftmaxResult expected = run(attention_read, in, g, g);
  const at::Tensor hidden = in.options.key_mask->logical_not().view({2, 130, 1, 1});
  in.key = in.key.detach().masked_fill(hidden, NAN).requires_grad_();
  in.value = in.value.detach().masked_fill(hidden, NAN).requires_grad_();
  const SoftmaxResult actual = run(attention_read, in, g, g);
  EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i])) << i;
  for (const at::Tensor& read : {actual.read.mean, actual.read.free_energy})
    EXPECT_FALSE(read.select(0, 1).ne(0).any().item<bool>());
  for (size_t i = 0; i < 3; ++i) EXPECT_FALSE(actual.gradients[i].select(0, 1).ne(0).any().item<bool>()) << i;
}

TEST_F(SoftmaxReadAnywhere, AnotherDevicesCallArrivesHere) {
  const at::NoGradGuard no_grad;
  const SoftmaxInputs drawn = make_inputs({"", 2, 300, 300, 2, 16, 8, true, 200, true});
  const auto single = [](const at::Tensor& x) { return x.to(at::kFloat); };
  const SoftmaxReadOp::Inputs in{single(drawn.query),
                                 single(drawn.key),
                                 single(drawn.value),
                                 single(*drawn.beta),
                                 {},
                                 {},
                                 {},
                                 true,
                                 drawn.options.window,
                                 drawn.options.key_mask,
                                 {}};
  const SoftmaxReadOp::Outputs read = as_on_cuda<SoftmaxReadOp>(in);
  const auto outputs = tensors_of(read), expected = tensors_of(SoftmaxReadOp::elsewhere(in));
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(outputs[i], expected[i])) << i;
  for (const auto& other : {SoftmaxReadOp::definition(in), call<SoftmaxReadOp>(in)})
    EXPECT_FALSE(at::equal(read.free_energy, other.free_energy)) << "nothing tells the paths apart";
  const at::Tensor g = at::randn_like(in.value);
  const auto b = all_gradients<SoftmaxReadOp>({g, g, {}}, in, read);
  const auto gradients = tensors_of<0, 4>(gradient_as_on_cuda<SoftmaxReadOp>(b));
  const auto wanted = tensors_of<0, 4>(SoftmaxReadOp::gradient_elsewhere(b));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(gradients[i], wanted[i])) << i;
}

TEST_F(SoftmaxReadAnywhere, Float16IsRefused) {
  const at::Tensor x = at::ones({1, 2, 1, 4}, at::kHalf);
  const auto call = [&] { as_on_cuda<SoftmaxReadOp>({x, x, x, {}, {}, {}, {}, true, {}, {}, {}}); };
  EXPECT_TRUE(fails_with("got Half (float16 cannot hold exp(beta v): cast to bfloat16)", call));
}

}  // namespace
}  // namespace fem::testing
