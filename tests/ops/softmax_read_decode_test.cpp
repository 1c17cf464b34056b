// Decoding: a few queries over many keys. From 512 keys on threads take parts of the keys, whose sums are then merged.
#include "fem/ops/softmax_read.h"
#include "support/error_text.h"
#include "support/kernel_test.h"
#include "support/softmax_run.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using SoftmaxDecoding = KernelTest;
FEM_ON_EVERY_ISA(SoftmaxDecoding);

// In one part, in two, in three, and in as many as 256 keys each allow.
constexpr int kThreads[] = {1, 2, 3, 7};

const std::vector<SoftmaxCase> kCases{
    {"fewest_keys_in_two_parts", 1, 1, 512, 2, 16, 8},
    {"one_query", 1, 1, 1000, 3, 60, 33},
    {"four_queries", 1, 4, 1303, 2, 40, 11},
    {"rows", 2, 3, 1111, 2, 24, 20},
    {"masked", 2, 2, 900, 2, 17, 9, true, std::nullopt, true},
    {"window_inside", 1, 3, 1500, 2, 16, 8, true, 700},
    {"window_of_few", 1, 4, 1024, 1, 8, 5, true, 2},
    {"encoder_masked", 1, 4, 777, 2, 12, 10, false, std::nullopt, true},
    {"mean_only", 1, 2, 1024, 2, 64, 33, true, std::nullopt, false, {}, true},
    {"more_heads_than_are_read_side_by_side", 1, 1, 600, 70, 4, 3},
};

void expect_parts_equal_the_definition(const SoftmaxInputs& inputs, at::ScalarType dtype) {
  const SoftmaxInputs low = cast(inputs, dtype), exact = cast(low, at::kDouble);
  const std::vector<int64_t> shape{low.query.size(0), low.query.size(1), low.query.size(2), low.value.size(3)};
  const at::Tensor g1 = at::randn(shape).to(dtype).to(at::kDouble), g2 = at::randn(shape).to(dtype).to(at::kDouble);
  const SoftmaxResult expected = run(softmax_read_definition, exact, g1, g2);
  for (const int threads : kThreads) {
    SCOPED_TRACE(threads);
    const ScopedThreads scope(threads);
    expect_close(run(fem::softmax_read, low, g1, g2), expected, dtype, exact.beta, g2);
  }
}

TEST_P(SoftmaxDecoding, AnyNumberOfPartsMatchesTheDefinition) {
  for (const SoftmaxCase& c : kCases)
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(c.name + " " + at::toString(dtype));
      expect_parts_equal_the_definition(make_inputs(c), dtype);
    }
}

// A part that sees nothing adds nothing: neither its zeros nor its highest score, which is none.
TEST_P(SoftmaxDecoding, PartsThatSeeNothingAddNothing) {
  const int64_t keys = 1792;  // seven parts of 256
  for (const auto& [begin, end] : {std::pair{0, 256}, {256, 1792}, {0, 1536}, {500, 1400}, {0, 1790}}) {
    SCOPED_TRACE(begin);
    SoftmaxInputs in = make_inputs({"", 1, 2, keys, 2, 16, 9});
    in.options.key_mask = at::ones({1, keys}, at::kBool);
    in.options.key_mask->slice(1, begin, end).zero_();
    expect_parts_equal_the_definition(in, at::kFloat);
  }
  SoftmaxInputs blind = cast(make_inputs({"", 1, 2, keys, 2, 16, 9}), at::kFloat);
  blind.options.key_mask = at::zeros({1, keys}, at::kBool);
  for (const int threads : kThreads) {
    const ScopedThreads scope(threads);
    const fem::SoftmaxRead read = fem::softmax_read(blind.query, blind.key, blind.value, blind.beta, blind.options);
    EXPECT_TRUE(read.mean.eq(0).all().item<bool>() && read.free_energy.eq(0).all().item<bool>());
    EXPECT_TRUE(read.log_normalizer.eq(-INFINITY).all().item<bool>());
  }
}

// Scores rise or fall by 130 over the keys: every merge rescales one side, by more than float32's range of weights.
// Where they are lowest the values are at the cap, so that parts of the least weight count.
TEST_P(SoftmaxDecoding, PartsOfVeryDifferentWeightAreMergedExactly) {
  const int64_t keys = 1300;
  for (const bool rising : {true, false}) {
    SCOPED_TRACE(rising);
    SoftmaxInputs in = make_inputs({"", 1, 1, keys, 1, 4, 6});
    in.query = at::zeros_like(in.query);
    in.key = at::zeros_like(in.key);
    in.query.select(3, 0).fill_(2);  // times the scale 1/2
    const at::Tensor scores = at::arange(keys, at::kDouble) * (rising ? 0.125 : -0.125);
    in.key.select(3, 0).copy_(scores.view({1, keys, 1}));
    in.beta = at::full({1, 6}, 2.0, at::kDouble);
    in.value = at::full_like(in.value, -20.0);
    (rising ? in.value.slice(1, 0, 600) : in.value.slice(1, keys - 600)).fill_(20);
    for (const int threads : kThreads) {
      SCOPED_TRACE(threads);
      const ScopedThreads scope(threads);
      const SoftmaxInputs low = cast(in, at::kFloat);
      const fem::SoftmaxRead expected = softmax_read_definition(in.query, in.key, in.value, in.beta);
      const fem::SoftmaxRead actual = fem::softmax_read(low.query, low.key, low.value, low.beta);
      EXPECT_TRUE(close(actual.mean, expected.mean, kFloat32));
      EXPECT_TRUE(close(actual.free_energy, expected.free_energy, kFloat32));
      EXPECT_TRUE(close(actual.log_normalizer, expected.log_normalizer, kFloat32));
    }
  }
}

// |beta v| beyond the kernels' range is found in whichever part it is.
TEST_P(SoftmaxDecoding, ValuesBeyondTheRangeAreRefusedInEveryPart) {
  const ScopedThreads scope(7);
  for (const int64_t at : {0, 700, 1791}) {
    SoftmaxInputs in = cast(make_inputs({"", 1, 1, 1792, 2, 16, 9}), at::kFloat);
    const at::NoGradGuard no_gradients;
    in.value.select(1, at).fill_(200);
    EXPECT_TRUE(fails_with("softmax_read: |beta v| reaches", [&] {
      fem::softmax_read(in.query, in.key, in.value, in.beta);
    })) << at;
  }
}

}  // namespace
}  // namespace fem::testing
