#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "fem/mixer.h"
#include "mixer/any_prior.h"
#include "mixer/random_mixer.h"
#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;
using testing::fails_with;
using testing::random_mixer;
using testing::random_tokens;
using testing::small_options;

constexpr int64_t kTokens = 24;

// Masks with padding on the left, on the right, or holes anywhere.
at::Tensor any_mask(int64_t batch) {
  const at::Tensor index = at::arange(kTokens);
  const at::Tensor border = at::randint(1, kTokens, {batch, 1});
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      return index.ge(border);
    case 1:
      return index.lt(border);
    default:
      return at::rand({batch, kTokens}).lt(0.7);
  }
}

RC_GTEST_PROP(FreeEnergyMixer, AnySplitEqualsOneCall, ()) {
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  MixerOptions options = small_options();
  testing::choose_prior(options);
  options.use_conv = *rc::gen::arbitrary<bool>();
  options.use_lse = options.use_temperature = *rc::gen::arbitrary<bool>();
  const auto dtype = *rc::gen::element(at::kDouble, at::kFloat);
  const auto batch_size = *rc::gen::inRange<int64_t>(1, 4);

  const at::NoGradGuard no_gradients;
  FreeEnergyMixer mixer = random_mixer(options, dtype);
  const at::Tensor x = random_tokens(batch_size, kTokens, options, dtype);
  Batch whole;
  if (*rc::gen::arbitrary<bool>()) whole.mask = any_mask(batch_size);
  const at::Tensor expected = mixer->forward(x, whole);

  MixerState state;
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < kTokens;) {
    const int64_t end = std::min(kTokens, begin + *rc::gen::inRange<int64_t>(1, 9));
    Batch batch;
    if (whole.mask) batch.mask = whole.mask->slice(1, begin, end);
    // A mask that hides nothing may as well be left out.
    if (batch.mask && batch.mask->all().item<bool>()) batch.mask.reset();
    parts.push_back(mixer->forward(x.slice(1, begin, end), state, batch));
    begin = end;
  }
  RC_ASSERT(state.tokens == kTokens);
  RC_ASSERT(close(at::cat(parts, 1), expected, dtype == at::kDouble ? testing::kFloat64 : testing::kFloat32Layer));
}

// Runs once for every prior in every dialect.
class Streaming : public ::testing::TestWithParam<testing::PriorInDialect> {
 protected:
  Streaming() { std::tie(options.prior_type, options.dialect) = GetParam(); }
  MixerOptions options = small_options();
};
INSTANTIATE_TEST_SUITE_P(Prior, Streaming, testing::every_prior_in_every_dialect(),
                         [](const auto& info) { return testing::name_of(info.param); });

TEST_P(Streaming, DecodesTokenByToken) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    FreeEnergyMixer mixer = random_mixer(options, dtype);
    const at::Tensor x = random_tokens(2, 140, options, dtype), expected = mixer(x);
    MixerState state;
    std::vector<at::Tensor> steps{mixer->forward(x.slice(1, 0, 70), state)};
    for (int64_t t = 70; t < 140; ++t) steps.push_back(mixer->forward(x.slice(1, t, t + 1), state));
    EXPECT_TRUE(close(at::cat(steps, 1), expected,
                      dtype == at::kDouble  ? testing::kFloat64
                      : dtype == at::kFloat ? testing::kFloat32Layer
                                            : testing::kBfloat16Layer));
  }
}

// A query's distances are counted from its place in the whole stream, with and without a window.
TEST(StreamingAlibi, AnySplitEqualsOneCall) {
  MixerOptions options = small_options();
  options.use_alibi = true;
  for (const std::optional<int64_t> window : {std::optional<int64_t>(), std::optional<int64_t>(20)})
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      options.window = window;
      const at::NoGradGuard no_gradients;
      FreeEnergyMixer mixer = random_mixer(options, dtype);
      const at::Tensor x = random_tokens(2, 140, options, dtype), expected = mixer(x);
      MixerState state;
      std::vector<at::Tensor> parts;
      for (int64_t begin = 0, step = 1; begin < 140; begin += step, step = step % 13 + 1)
        parts.push_back(mixer->forward(x.slice(1, begin, std::min<int64_t>(begin + step, 140)), state));
      const testing::Tolerance tolerance = dtype == at::kDouble ? testing::kFloat64 : testing::kFloat32Layer;
      EXPECT_TRUE(close(at::cat(parts, 1), expected, tolerance));
      MixerOptions plain = options;
      plain.use_alibi = false;
      FreeEnergyMixer without(plain);
      without->to(dtype);
      auto parameters = without->named_parameters();
      for (const auto& parameter : mixer->named_parameters()) parameters[parameter.key()].copy_(*parameter);
      EXPECT_FALSE(close(without(x), expected, tolerance)) << "slopes change nothing";
    }
}

TEST_P(Streaming, LongMemoriesInBfloat16AreAsExactTokenByTokenAsInOneCall) {
  // A thousand tokens and more stay in the conditioner's h and in the prior's sums: kept in bfloat16 these would stop
  // to grow, and the stream drift away.
  constexpr int64_t kLong = 1500;
  const at::NoGradGuard no_gradients;
  at::manual_seed(11);
  FreeEnergyMixer exact = random_mixer(options);
  for (const auto& parameter : exact->named_parameters()) {
    if (parameter.key() == "tdc.fwd.in_f.bias") parameter->fill_(-7);  // h decays by softplus of this
    if (parameter.key() == "W_decay.bias") parameter->fill_(-7);
    parameter->copy_(parameter->to(at::kBFloat16));
  }
  FreeEnergyMixer low(options);
  low->to(at::kBFloat16);
  auto parameters = low->named_parameters();
  for (const auto& parameter : exact->named_parameters()) parameters[parameter.key()].copy_(*parameter);

  const at::Tensor x = random_tokens(1, kLong, options, at::kBFloat16);
  MixerState state;
  std::vector<at::Tensor> steps;
  for (int64_t t = 0; t < kLong; ++t) steps.push_back(low->forward(x.slice(1, t, t + 1), state));
  EXPECT_TRUE(testing::about_as_exact(at::cat(steps, 1), low(x), exact(x.to(at::kDouble)), testing::kTimesOneCall));
}

TEST_P(Streaming, OnlySoftmaxRemembersTokens) {
  FreeEnergyMixer mixer = random_mixer(options);
  MixerState state;
  const auto numbers = [&] {
    int64_t count = 0;
    for (const auto& [name, tensor] : state.to_tensors()) count += tensor.numel();
    return count;
  };
  mixer->forward(random_tokens(2, 10, options), state);
  const int64_t before = numbers();
  mixer->forward(random_tokens(2, 90, options), state);
  if (options.prior_type == PriorType::kSoftmax)
    EXPECT_GT(numbers(), 5 * before);
  else
    EXPECT_EQ(numbers(), before);
}

TEST_P(Streaming, NoTokensChangeNothing) {
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(2, 8, options), expected = mixer(x);
  MixerState state;
  EXPECT_EQ(mixer(x.slice(1, 0, 0), state).size(1), 0);
  mixer(x.slice(1, 0, 5), state);
  mixer(x.slice(1, 5, 5), state);
  EXPECT_TRUE(close(mixer(x.slice(1, 5), state), expected.slice(1, 5), testing::kFloat64));
}

TEST_P(Streaming, TokensThatAreAllMaskedChangeNothingAfter) {
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(2, 8, options), expected = mixer(x);
  MixerState state;
  mixer->forward(x.slice(1, 0, 5), state);
  mixer->forward(random_tokens(2, 3, options), state, Batch{at::zeros({2, 3}, at::kBool), {}});
  EXPECT_TRUE(close(mixer->forward(x.slice(1, 5), state), expected.slice(1, 5), testing::kFloat64));
}

TEST(FreeEnergyMixer, AWindowedCacheStaysBounded) {
  MixerOptions options = small_options();
  options.window = 4;
  FreeEnergyMixer mixer = random_mixer(options);
  MixerState state;
  for (int64_t t = 0; t < 50; ++t) {
    mixer->forward(random_tokens(1, 1, options), state);
    EXPECT_LE(state.caches.at("key").length(), 8);
  }
}

// A window of any number is none that hides, streamed, too; under sanitizers no sum of it overflows.
TEST(FreeEnergyMixer, TheWidestWindowHidesNothing) {
  MixerOptions options = small_options();
  const FreeEnergyMixer all = random_mixer(options);
  const at::Tensor x = random_tokens(1, 9, options);
  options.window = kLargestWindow;
  MixerState state;
  const auto read = [&](int64_t begin, int64_t end) {
    return mix(x.slice(1, begin, end), all->weights, options, {}, &state);
  };
  const at::NoGradGuard no_gradients;
  EXPECT_TRUE(close(at::cat({read(0, 5), read(5, 6), read(6, 9)}, 1), all(x), testing::kFloat64));
}

TEST(FreeEnergyMixer, ACacheIsAQuarterSmallerThanAttentions) {
  const MixerOptions options = small_options();
  FreeEnergyMixer mixer = random_mixer(options);
  MixerState state;
  mixer->forward(random_tokens(1, 10, options), state);
  int64_t numbers = 0;
  for (const auto& [name, cache] : state.caches) numbers += cache.rows().numel();
  EXPECT_EQ(numbers, 10 * 2 * options.n_embd * 3 / 4);
}

TEST(FreeEnergyMixer, RefusesToStreamWhatCannotBe) {
  const MixerOptions options = small_options();
  MixerOptions encoder = options;
  encoder.causal = false;
  const at::Tensor x = random_tokens(2, 3, options);
  FreeEnergyMixer mixer = random_mixer(options);
  MixerState state;
  EXPECT_TRUE(fails_with("a state needs causal=true", [&] { random_mixer(encoder)->forward(x, state); }));
  EXPECT_TRUE(fails_with("call forward(x) to train", [&] { mixer->forward(x.clone().requires_grad_(), state); }));
  EXPECT_TRUE(fails_with("a state cannot continue packed sequences",
                         [&] { mixer->forward(x.slice(0, 0, 1), state, Batch{{}, at::tensor({0, 3})}); }));
  EXPECT_EQ(state.tokens, 0);
  const at::Tensor y = mixer->forward(x, state);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(fails_with("expected x with the state's batch size 2, got [1, 3, 16]",
                         [&] { mixer->forward(x.slice(0, 1), state); }));
}

TEST_P(Streaming, ACallThatThrowsLeavesTheStateAsItWas) {
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(2, 8, options), expected = mixer(x);
  MixerState state;
  mixer->forward(x.slice(1, 0, 4), state);
  MixerWeights broken = mixer->weights;
  broken.output.weight = at::ones({1, 1}, at::kDouble);
  EXPECT_ANY_THROW(mix(random_tokens(2, 2, options), broken, options, {}, &state));
  EXPECT_TRUE(close(mixer->forward(x.slice(1, 4), state), expected.slice(1, 4), testing::kFloat64));
}

}  // namespace
}  // namespace fem
