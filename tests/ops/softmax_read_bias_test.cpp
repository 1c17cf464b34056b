// What is added to the scores: a bias for every query and key, and ALiBi's slopes.
#include "fem/ops/softmax_read.h"
#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/softmax_run.h"

namespace fem::testing {
namespace {

using SoftmaxBias = KernelTest;
FEM_ON_EVERY_ISA(SoftmaxBias);

const std::vector<SoftmaxCase> kBiasCases{
    {"one_token", 2, 1, 1, 2, 4, 3},
    {"T63_odd_widths", 2, 63, 63, 3, 60, 7},
    {"T111_masked", 3, 111, 111, 2, 16, 9, true, std::nullopt, true},
    {"T301", 2, 301, 301, 2, 33, 20},
    {"T301_window", 1, 301, 301, 2, 12, 5, true, 70},
    {"encoder", 2, 111, 111, 2, 12, 10, false},
    {"encoder_window_masked", 2, 301, 301, 1, 8, 4, false, 9, true},
    {"packed", 1, 301, 301, 2, 32, 16, true, std::nullopt, false, {0, 3, 3, 111, 301}},
    {"packed_encoder_masked", 1, 250, 250, 2, 8, 6, false, std::nullopt, true, {0, 100, 101, 250}},
    {"one_query", 2, 1, 301, 3, 40, 12},
    {"four_queries_masked_window", 2, 4, 900, 2, 40, 11, true, 700, true},
    {"continuation", 2, 50, 333, 2, 24, 8},
    {"more_queries_than_keys", 2, 50, 20, 2, 16, 8},
    {"cross_attention", 2, 65, 257, 2, 16, 8, false},
    {"mean_only", 2, 111, 111, 2, 64, 33, true, std::nullopt, false, {}, true},
    {"mean_only_few_queries", 2, 2, 301, 2, 64, 33, true, std::nullopt, true, {}, true},
};

enum class Added { kBias, kOneBias, kSlopes, kBoth, kOneBiasAndSlopes };
constexpr std::pair<Added, const char*> kAdded[] = {{Added::kBias, "a bias for every head"},
                                                    {Added::kOneBias, "one bias for all heads"},
                                                    {Added::kSlopes, "slopes"},
                                                    {Added::kBoth, "a bias for every head and slopes"},
                                                    {Added::kOneBiasAndSlopes, "one bias and slopes"}};

// From slopes that leave a few tokens to slopes that leave hundreds; negative ones prefer far tokens.
at::Tensor slopes_of(int64_t heads) { return at::tensor({0.25, 0.0078125, -0.015625}, at::kDouble).slice(0, 0, heads); }

SoftmaxInputs biased(const SoftmaxCase& c, Added added) {
  SoftmaxInputs in = make_inputs(c);
  const bool one = added == Added::kOneBias || added == Added::kOneBiasAndSlopes;
  if (added != Added::kSlopes) in.options.bias = 2 * at::randn({one ? 1 : c.heads, c.queries, c.keys}).to(at::kDouble);
  if (added != Added::kBias && added != Added::kOneBias) in.options.slopes = slopes_of(c.heads);
  return in;
}

// -slope |distance| as a bias, by the positions that SoftmaxReadOptions names.
at::Tensor bias_of_slopes(const at::Tensor& slopes, int64_t queries, int64_t keys, bool causal) {
  const at::Tensor position = at::arange(queries, at::kDouble) + static_cast<double>(causal ? keys - queries : 0);
  return -slopes.view({-1, 1, 1}) * (position.unsqueeze(1) - at::arange(keys, at::kDouble)).abs();
}

at::Tensor random_seed(const SoftmaxCase& c, at::ScalarType dtype) {
  return at::randn({c.batch, c.queries, c.heads, c.value_width}).to(dtype).to(at::kDouble);
}

using ReadFunction = fem::SoftmaxRead (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                          const std::optional<at::Tensor>&, const SoftmaxReadOptions&);

void expect_all_match_the_definition(ReadFunction read, at::ScalarType dtype) {
  for (const SoftmaxCase& c : kBiasCases)
    for (const auto& [added, name] : kAdded) {
      SCOPED_TRACE(c.name + ", " + name);
      const SoftmaxInputs low = cast(biased(c, added), dtype), exact = cast(low, at::kDouble);
      const at::Tensor g1 = random_seed(c, dtype), g2 = random_seed(c, dtype);
      expect_close(run(read, low, g1, g2), run(softmax_read_definition, exact, g1, g2), dtype, exact.beta, g2,
                   c.one_key());
    }
}

TEST_P(SoftmaxBias, Float32MatchesTheDefinition) { expect_all_match_the_definition(softmax_read, at::kFloat); }
TEST_P(SoftmaxBias, Bfloat16MatchesTheDefinition) { expect_all_match_the_definition(softmax_read, at::kBFloat16); }

TEST(SoftmaxBiasAnywhere, EveryDtypeMatchesTheDefinition) {
  at::manual_seed(7);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(dtype);
    expect_all_match_the_definition(attention_read, dtype);
  }
}

TEST_P(SoftmaxBias, Bfloat16IsAsExactAsTheDefinitionInBfloat16) {
  for (const SoftmaxCase& c : kBiasCases) {
    if (c.one_key()) continue;
    SCOPED_TRACE(c.name);
    const SoftmaxInputs in = cast(biased(c, Added::kBoth), at::kBFloat16), exact = cast(in, at::kDouble);
    const at::Tensor g1 = random_seed(c, at::kBFloat16), g2 = random_seed(c, at::kBFloat16);
    expect_as_exact(run(softmax_read, in, g1, g2), run(softmax_read_definition, in, g1, g2),
                    run(softmax_read_definition, exact, g1, g2), exact, g2);
  }
}

// Where threads divide a head each has some columns of the bias's gradient.
TEST_P(SoftmaxBias, ThreadsAgree) {
  for (const Added added : {Added::kBias, Added::kOneBiasAndSlopes}) {
    const SoftmaxCase c{"", 2, 301, 301, 2, 16, 8};
    const SoftmaxInputs in = cast(biased(c, added), at::kFloat);
    const at::Tensor g = random_seed(c, at::kFloat);
    const auto with = [&](int threads) {
      const ScopedThreads scope(threads);
      return run(softmax_read, in, g, g);
    };
    const SoftmaxResult one = with(1);
    for (const int threads : {2, 3, 7}) {
      const SoftmaxResult more = with(threads);
      EXPECT_TRUE(at::equal(more.read.free_energy, one.read.free_energy)) << threads;
      for (size_t i = 0; i < one.gradients.size(); ++i)
        EXPECT_TRUE(close(more.gradients[i], one.gradients[i], kFloat32Gradient)) << one.names[i] << " " << threads;
    }
  }
}

TEST_P(SoftmaxBias, NothingAddedIsThePlainRead) {
  for (const SoftmaxCase& c : kBiasCases) {
    SCOPED_TRACE(c.name);
    const SoftmaxInputs plain = cast(make_inputs(c), at::kFloat);
    SoftmaxInputs zero_bias = plain, zero_slopes = plain;
    zero_bias.options.bias = at::zeros({1, c.queries, c.keys});
    zero_slopes.options.slopes = at::zeros({c.heads});
    const at::Tensor g = random_seed(c, at::kFloat);
    const SoftmaxResult expected = run(softmax_read, plain, g, g);
    for (const SoftmaxInputs& in : {zero_bias, zero_slopes}) {
      const SoftmaxResult actual = run(softmax_read, in, g, g);
      EXPECT_TRUE(at::equal(actual.read.mean, expected.read.mean));
      EXPECT_TRUE(!in.beta || at::equal(actual.read.free_energy, expected.read.free_energy));
      EXPECT_TRUE(at::equal(actual.read.log_normalizer, expected.read.log_normalizer));
      for (size_t i = 0; i < expected.gradients.size(); ++i)
        EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i])) << expected.names[i];
    }
  }
}

// Slopes are powers of two: their products with distances are exact in float32.
TEST_P(SoftmaxBias, ABiasThatEqualsTheSlopesGivesTheSame) {
  for (const SoftmaxCase& c : kBiasCases)
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      SCOPED_TRACE(c.name);
      SoftmaxInputs sloped = biased(c, Added::kSlopes), same = sloped;
      same.options.slopes.reset();
      same.options.bias = bias_of_slopes(*sloped.options.slopes, c.queries, c.keys, c.causal);
      const at::Tensor g = random_seed(c, dtype);
      const SoftmaxResult actual = run(softmax_read, cast(sloped, dtype), g, g);
      const SoftmaxResult expected = run(softmax_read, cast(same, dtype), g, g);
      EXPECT_TRUE(close(actual.read.mean, expected.read.mean, forward_tolerance(dtype)));
      if (sloped.beta) {
        EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, forward_tolerance(dtype)));
      }
      EXPECT_TRUE(close(actual.read.log_normalizer, expected.read.log_normalizer, forward_tolerance(dtype)));
      for (size_t i = c.one_key() ? 2 : 0; i < 3; ++i)
        EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], gradient_tolerance(dtype))) << actual.names[i];
    }
}

TEST_P(SoftmaxBias, StridedBiasGivesTheSame) {
  const SoftmaxCase c{"", 2, 70, 90, 3, 16, 8};
  const SoftmaxInputs in = cast(biased(c, Added::kBias), at::kFloat);
  const at::Tensor g = random_seed(c, at::kFloat);
  const SoftmaxResult expected = run(softmax_read, in, g, g);
  const at::Tensor bias = in.options.bias->detach();
  for (const at::Tensor& view :
       {bias.transpose(1, 2).contiguous().transpose(1, 2), at::cat({bias, bias}, 2).slice(2, 0, 90)}) {
    SoftmaxInputs strided = in;
    strided.options.bias = view.requires_grad_();
    const SoftmaxResult actual = run(softmax_read, strided, g, g);
    EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
    for (size_t i = 0; i < 5; ++i)
      EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i])) << actual.names[i];
  }
  SoftmaxInputs one = in, every = in;  // the same for all heads, as one and as a view of heads that share memory
  one.options.bias = bias.slice(0, 0, 1), every.options.bias = bias.slice(0, 0, 1).expand({3, 70, 90});
  EXPECT_TRUE(
      at::equal(run(softmax_read, one, g, g).read.free_energy, run(softmax_read, every, g, g).read.free_energy));
}

// A bias that is not learned leaves the other gradients, which then come of all heads at once, as they are.
TEST_P(SoftmaxBias, OtherGradientsDoNotDependOnWhetherTheBiasLearns) {
  const SoftmaxCase c{"", 2, 111, 111, 2, 16, 8};
  for (const Added added : {Added::kBias, Added::kOneBias}) {
    const SoftmaxInputs learned = cast(biased(c, added), at::kFloat);
    SoftmaxInputs fixed = learned;
    fixed.options.bias = learned.options.bias->detach();
    const at::Tensor g = random_seed(c, at::kFloat);
    const SoftmaxResult expected = run(softmax_read, learned, g, g), actual = run(softmax_read, fixed, g, g);
    ASSERT_EQ(actual.gradients.size(), 4u);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], kFloat32Gradient)) << actual.names[i];
  }
}

// What is hidden stays so, whatever is added to its score; its bias has the gradient 0.
TEST_P(SoftmaxBias, HiddenKeysStayHidden) {
  for (const ReadFunction read : {ReadFunction(softmax_read), ReadFunction(attention_read)})
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const SoftmaxCase c{"", 1, 130, 130, 2, 8, 4, true, 50, true};
      const SoftmaxInputs in = cast(biased(c, Added::kBias), dtype);
      const at::Tensor index = at::arange(130), before = index.unsqueeze(1) - index;
      const at::Tensor hidden = (before < 0).logical_or(before >= 50).logical_or(in.options.key_mask->logical_not());
      const at::Tensor g = random_seed(c, dtype);
      const SoftmaxResult expected = run(read, in, g, g);
      SoftmaxInputs other = in;
      other.options.bias = in.options.bias->detach().masked_fill(hidden, 1e4).requires_grad_();
      const SoftmaxResult actual = run(read, other, g, g);
      EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
      for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i])) << i;
      EXPECT_FALSE(actual.gradients[4].masked_select(hidden).ne(0).any().item<bool>());
    }
}

TEST_P(SoftmaxBias, ABiasOfMinusInfinityHides) {
  const SoftmaxCase c{"", 2, 90, 90, 2, 8, 4};
  for (const ReadFunction read : {ReadFunction(softmax_read), ReadFunction(attention_read)})
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      SoftmaxInputs in = cast(make_inputs(c), dtype), windowed = in;
      windowed.options.window = 7;
      const at::Tensor index = at::arange(90);
      in.options.bias = at::zeros({1, 90, 90}, dtype).masked_fill(index.unsqueeze(1) - index >= 7, -INFINITY);
      const at::Tensor g = random_seed(c, dtype);
      const SoftmaxResult expected = run(read, windowed, g, g), actual = run(read, in, g, g);
      EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, forward_tolerance(dtype)));
      for (size_t i = 0; i < 4; ++i)
        EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], gradient_tolerance(dtype))) << i;
    }
}

TEST_P(SoftmaxBias, EmptyInputsGiveEmptyOrZeroReads) {
  for (const ReadFunction read : {ReadFunction(softmax_read), ReadFunction(attention_read)})
    for (const auto& [batch, queries, keys] :
         std::vector<std::array<int64_t, 3>>{{0, 5, 5}, {2, 0, 0}, {2, 0, 7}, {2, 9, 0}, {2, 2, 0}})
      for (const auto dtype : {at::kFloat, at::kDouble}) {
        SCOPED_TRACE(::testing::Message() << batch << " " << queries << " " << keys << " " << at::toString(dtype));
        const SoftmaxCase c{"", batch, queries, keys, 2, 8, 4, false};
        const at::Tensor g = at::ones({batch, queries, 2, 4});
        const SoftmaxResult result = run(read, cast(biased(c, Added::kBoth), dtype), g, g);
        EXPECT_TRUE(at::equal(result.read.free_energy, at::zeros_like(result.read.mean)));
        ASSERT_EQ(result.gradients.size(), 5u);
        for (const at::Tensor& gradient : result.gradients) EXPECT_TRUE(at::equal(gradient, at::zeros_like(gradient)));
      }
}

TEST(SoftmaxBiasDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(3);
  for (const SoftmaxCase& c : std::vector<SoftmaxCase>{{"causal", 1, 4, 5, 2, 3, 2},
                                                       {"masked", 2, 4, 4, 1, 2, 2, false, std::nullopt, true},
                                                       {"packed", 1, 6, 6, 2, 2, 2, true, 2, false, {0, 2, 6}}})
    for (const Added added : {Added::kBoth, Added::kOneBiasAndSlopes}) {
      SCOPED_TRACE(c.name);
      const SoftmaxInputs in = biased(c, added);
      const auto reader = [&](ReadFunction function) {
        return [&in, function](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
          SoftmaxReadOptions options = in.options;
          options.bias = x[4];
          const fem::SoftmaxRead out = function(x[0], x[1], x[2], x[3], options);
          return {out.mean, out.free_energy};
        };
      };
      const std::vector<at::Tensor> point{in.query, in.key, in.value, *in.beta, *in.options.bias};
      for (const ReadFunction function : {ReadFunction(softmax_read), ReadFunction(softmax_read_definition)})
        EXPECT_TRUE(gradients_match(reader(function), point, /*second_order=*/true));
      EXPECT_TRUE(gradients_match(reader(attention_read), point, /*second_order=*/true));
    }
}

TEST(SoftmaxBiasErrors, SayWhatWasExpectedAndWhatCame) {
  const at::Tensor query = at::randn({2, 5, 3, 4}), key = at::randn({2, 7, 3, 4}), value = at::randn({2, 7, 3, 6});
  const auto expect = [&](const SoftmaxReadOptions& options, const char* text) {
    EXPECT_TRUE(fails_with(text, [&] { softmax_read(query, key, value, at::ones({3, 6}), options); }));
  };
  expect({.bias = at::zeros({2, 5, 7})},
         "softmax_read: expected bias as Float [H=3 or 1, Tq=5, Tk=7], got Float [2, 5, 7]");
  expect({.bias = at::zeros({3, 7, 5})}, "expected bias as Float [H=3 or 1, Tq=5, Tk=7], got Float [3, 7, 5]");
  expect({.bias = at::zeros({5, 7})}, "got Float [5, 7]");
  expect({.bias = at::zeros({3, 5, 7}, at::kDouble)}, "got Double [3, 5, 7]");
  expect({.bias = at::zeros({3, 5, 7}, at::kMeta)}, "softmax_read: expected bias on cpu like query, got it on meta");
  expect({.slopes = at::ones({2})},
         "softmax_read: expected slopes as Float [3] (ALiBi: one for each head), got Float [2]");
  expect({.slopes = at::ones({3}, at::kBFloat16)}, "got BFloat16 [3]");
  expect({.slopes = at::ones({3}, at::kMeta)}, "softmax_read: expected slopes on cpu like query, got it on meta");
}

}  // namespace
}  // namespace fem::testing
