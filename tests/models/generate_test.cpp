#include "fem/generate.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/small_models.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::bigram_model;
using testing::every_mixer;
using testing::fails_with;
using testing::MixerChoice;
using testing::random_model;
using Tokens = std::vector<int64_t>;

constexpr int64_t kCountedTokens = 16;

// After every token the next one, after the last the first.
LanguageModel counting_model() { return bigram_model(at::eye(kCountedTokens).roll(1, 1) * 4); }

// The same logits after every token.
LanguageModel constant_model(const std::vector<float>& logits) {
  const auto size = static_cast<int64_t>(logits.size());
  return bigram_model(at::tensor(logits).expand({size, size}));
}

// How often each token is the first one made, of many draws.
std::vector<double> frequencies(LanguageModel model, GenerateOptions options) {
  constexpr size_t kDraws = 4000;
  options.max_tokens = 1;
  std::vector<double> found(model->options.vocab_size);
  for (const Tokens& made : generate(model, std::vector<Tokens>(kDraws, {0}), options)) found[made[0]] += 1.0 / kDraws;
  return found;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (expected[i] == 0)
      EXPECT_EQ(found[i], 0) << "token " << i;
    else
      EXPECT_NEAR(found[i], expected[i], 0.03) << "token " << i;
  }
}

TEST(Generate, TakesTheLikeliestTokensAndStopsAfterTheLastOne) {
  LanguageModel model = counting_model();
  const auto made = generate(model, {{0}, {3, 9}}, {.max_tokens = 5, .temperature = 0, .end = 4});
  EXPECT_EQ(made, (std::vector<Tokens>{{1, 2, 3, 4}, {10, 11, 12, 13, 14}}));
}

TEST(Generate, ARowGoesOnWhileItIsWanted) {
  LanguageModel model = counting_model();
  std::vector<std::pair<size_t, int64_t>> seen;
  const auto made = generate(model, {{0}, {5}}, {.max_tokens = 3, .temperature = 0}, [&](size_t row, int64_t token) {
    seen.emplace_back(row, token);
    return token != 1;
  });
  EXPECT_EQ(made, (std::vector<Tokens>{{1}, {6, 7, 8}}));
  EXPECT_EQ(seen, (std::vector<std::pair<size_t, int64_t>>{{0, 1}, {1, 6}, {1, 7}, {1, 8}}));
}

TEST(Generate, MakesNothingWhereNothingIsAsked) {
  LanguageModel model = counting_model();
  const auto never = [](size_t, int64_t) -> bool { throw std::logic_error("a token was made"); };
  EXPECT_EQ(generate(model, {{0}, {5}}, {.max_tokens = 0}, never), (std::vector<Tokens>{{}, {}}));
  EXPECT_TRUE(generate(model, {}, {}, never).empty());
}

TEST(Generate, OfEqualMaximaTheFirstIsTaken) {
  LanguageModel model = constant_model({0, 1, 3, 2, 3, 3});
  EXPECT_EQ(generate(model, {{0}}, {.max_tokens = 2, .temperature = 0}), (std::vector<Tokens>{{2, 2}}));
  EXPECT_EQ(generate(model, {{0}}, {.max_tokens = 2, .top_k = 1}), (std::vector<Tokens>{{2, 2}}));
  EXPECT_EQ(generate(model, {{0}}, {.max_tokens = 2, .top_p = 0.01}), (std::vector<Tokens>{{2, 2}}));
}

TEST(Generate, DrawsByProbability) {
  // At temperature 2: 1/2, 1/4, 1/8, 1/16, 1/16.
  const float unit = 2 * std::log(2.0F);
  LanguageModel model = constant_model({-2 * unit, -unit, -4 * unit, -3 * unit, -4 * unit});
  const GenerateOptions warm{.temperature = 2};
  expect_near(frequencies(model, warm), {0.25, 0.5, 0.0625, 0.125, 0.0625});

  GenerateOptions options = warm;
  options.top_k = 2;
  expect_near(frequencies(model, options), {1.0 / 3, 2.0 / 3, 0, 0, 0});
  options.top_k = 4;  // of the two least likely the first stays
  expect_near(frequencies(model, options), {4.0 / 15, 8.0 / 15, 1.0 / 15, 2.0 / 15, 0});

  options = warm;
  options.top_p = 0.74;  // two hold 3/4
  expect_near(frequencies(model, options), {1.0 / 3, 2.0 / 3, 0, 0, 0});
  options.top_p = 0.76;
  expect_near(frequencies(model, options), {2.0 / 7, 4.0 / 7, 0, 1.0 / 7, 0});
  options.top_p = 1;
  expect_near(frequencies(model, options), {0.25, 0.5, 0.0625, 0.125, 0.0625});

  options = warm;
  options.top_k = 2;
  options.top_p = 0.6;  // of the two that top_k leaves the first holds 2/3
  expect_near(frequencies(model, options), {0, 1, 0, 0, 0});
}

TEST(Generate, APenaltyMakesSeenTokensLessLikely) {
  LanguageModel model = constant_model({4, 3, 2, 1, -1, -2});
  GenerateOptions options{.max_tokens = 6, .temperature = 0, .repetition_penalty = 8};
  // Token 0 was in the prompt. Positive logits are divided and stay above the negative ones, which are multiplied.
  EXPECT_EQ(generate(model, {{0}}, options), (std::vector<Tokens>{{1, 2, 3, 0, 0, 0}}));
  options.repetition_penalty = 0.5;  // below 1 more likely
  EXPECT_EQ(generate(model, {{2, 1}}, options), (std::vector<Tokens>{{1, 1, 1, 1, 1, 1}}));
}

TEST(Generate, TheSeedDecidesTheText) {
  LanguageModel model = random_model(every_mixer()[1], kCountedTokens);
  const std::vector<Tokens> prompts{{1, 2, 3}, {1, 2, 3}};
  GenerateOptions options{.max_tokens = 12, .seed = 5};
  const auto made = generate(model, prompts, options);
  EXPECT_EQ(generate(model, prompts, options), made);
  EXPECT_NE(made[0], made[1]) << "two samples of one prompt must differ";
  options.seed = 6;
  EXPECT_NE(generate(model, prompts, options), made);
  options.seed = 5 + (uint64_t{1} << 32);
  EXPECT_NE(generate(model, prompts, options), made);
}

class EveryMixer : public ::testing::TestWithParam<MixerChoice> {};
INSTANTIATE_TEST_SUITE_P(Mixer, EveryMixer, ::testing::ValuesIn(every_mixer()),
                         [](const auto& info) { return testing::name_of(info.param); });

TEST_P(EveryMixer, CachedAndUncachedMakeTheSameText) {
  LanguageModel model = random_model(GetParam(), kCountedTokens);
  const std::vector<Tokens> ragged{{1, 2, 3, 4, 5, 6, 7}, {9}, {3, 1, 4, 1}}, even{{1, 2, 3}, {4, 5, 6}, {1, 2, 3}};
  GenerateOptions options{.max_tokens = 20, .repetition_penalty = 1.1, .seed = 3};
  const auto text = [&](const std::vector<Tokens>& prompts) {
    // The second row ends early.
    return generate(model, prompts, options,
                    [steps = 0](size_t row, int64_t) mutable { return row != 1 || ++steps < 6; });
  };
  for (const auto& prompts : {ragged, even}) {
    for (const double temperature : {0.0, 1.5}) {
      options.temperature = temperature;
      options.cached = true;
      const auto made = text(prompts);
      EXPECT_EQ(made[1].size(), 6);
      options.cached = false;
      EXPECT_EQ(text(prompts), made) << "at temperature " << temperature;
    }
  }
}

TEST_P(EveryMixer, ARowDoesNotDependOnItsNeighbours) {
  LanguageModel model = random_model(GetParam(), kCountedTokens);
  const GenerateOptions options{.max_tokens = 20, .temperature = 1.5, .seed = 1};
  const auto alone = generate(model, {{1, 2, 3}}, options);
  const auto beside = generate(model, {{1, 2, 3}, {4, 5, 6, 7, 8, 9}, {2}}, options,
                               [steps = 0](size_t row, int64_t) mutable { return row != 1 || ++steps < 7; });
  EXPECT_EQ(beside[0], alone[0]);
  EXPECT_EQ(beside[1].size(), 7);
  EXPECT_EQ(generate(model, {{5}, {4, 5}, {2}}, options)[2], beside[2]);
}

TEST_P(EveryMixer, APromptOfSeveralPiecesIsReadAsOne) {
  LanguageModel model = random_model(GetParam(), kCountedTokens);
  Tokens prompt(2048 + 5);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int64_t>(i * i % 13);
  GenerateOptions options{.max_tokens = 3, .temperature = 0};
  const std::vector<Tokens> prompts{prompt, {1, 2}};  // the second is all padding in the first piece
  const auto made = generate(model, prompts, options);
  options.cached = false;
  EXPECT_EQ(generate(model, prompts, options), made);
}

TEST(Generate, LeavesTheModelInTrainingAsItWas) {
  LanguageModelOptions options = random_model(every_mixer()[1], kCountedTokens)->options;
  options.mixer.dropout = 0.5;
  LanguageModel model(options);
  ASSERT_TRUE(model->is_training());
  const auto made = generate(model, {{1}}, {.max_tokens = 10});
  EXPECT_TRUE(model->is_training());
  model->eval();
  EXPECT_EQ(generate(model, {{1}}, {.max_tokens = 10}), made);
  EXPECT_FALSE(model->is_training());
}

TEST(Generate, EachBadOptionGetsItsSentence) {
  LanguageModel model = counting_model();
  const auto with = [&](const GenerateOptions& options) { return [&] { generate(model, {{0}}, options); }; };
  EXPECT_TRUE(fails_with("generate: expected a temperature of 0 (greedy) or more, got -1", with({.temperature = -1})));
  EXPECT_TRUE(fails_with("got nan", with({.temperature = std::nan("")})));
  EXPECT_TRUE(fails_with("expected top_k of 1 or more, got 0", with({.top_k = 0})));
  EXPECT_TRUE(fails_with("expected top_p above 0 and at most 1, got 0", with({.top_p = 0.0})));
  EXPECT_TRUE(fails_with("expected top_p above 0 and at most 1, got 1.5", with({.top_p = 1.5})));
  EXPECT_TRUE(fails_with("expected a repetition_penalty above 0", with({.repetition_penalty = 0})));
  EXPECT_TRUE(fails_with("expected max_tokens of 0 or more, got -3", with({.max_tokens = -3})));
  EXPECT_TRUE(fails_with("expected end to be a token from 0 to 15, got 16", with({.end = 16})));
  EXPECT_TRUE(fails_with("prompt 1 is empty", [&] { generate(model, {{0}, {}}); }));
  EXPECT_TRUE(fails_with("expected tokens from 0 to 15, got 99 in prompt 1", [&] { generate(model, {{0}, {3, 99}}); }));
  EXPECT_TRUE(fails_with("got -1 in prompt 0", [&] { generate(model, {{-1}}); }));
}

TEST(Generate, ABrokenModelIsNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  LanguageModel model = constant_model({0, nan, 1, 2});
  for (const double temperature : {0.0, 1.0})
    EXPECT_TRUE(fails_with("expected finite logits", [&] { generate(model, {{0}}, {.temperature = temperature}); }));
}

}  // namespace
}  // namespace fem
