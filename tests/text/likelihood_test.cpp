#include "fem/text/likelihood.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "support/error_text.h"
#include "text/bigrams.h"
#include "text/scoring.h"

namespace fem {
namespace {

using testing::bigram_model;
using testing::bytes_of;
using testing::every_mixer;
using testing::fails_with;
using testing::kSeparator;
using testing::kVocabulary;
using testing::log_probability;
using testing::MixerChoice;
using testing::random_bigrams;
using testing::random_model;
using testing::reciting_model;
using Tokens = std::vector<int64_t>;

constexpr double kEpsilon = 1e-5;

// Bytes, but "the" is one token, and so is a space with the letter after it.
class PairTokenizer : public Tokenizer {
 public:
  Tokens encode(std::string_view text) const override {
    Tokens tokens;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i).starts_with("the")) {
        tokens.push_back(1);
        i += 2;
      } else if (text[i] == ' ' && i + 1 < text.size()) {
        tokens.push_back(128 + text[++i]);
      } else {
        tokens.push_back(text[i]);
      }
    }
    return tokens;
  }
  std::string decode(const Tokens&) const override { return {}; }
  int64_t vocab_size() const override { return kVocabulary; }
  int64_t separator() const override { return kSeparator; }
  std::string fingerprint() const override { return "pairs"; }
  void save(const std::filesystem::path&) const override {}
};

TEST(Likelihoods, AreThoseOfTheContinuationAfterTheContext) {
  const at::Tensor bigrams = random_bigrams();
  LanguageModel model = bigram_model(bigrams);
  const auto found = likelihoods(model, *byte_tokenizer(),
                                 {{"a cat", " sat"}, {"a line\n", "end"}, {"a", "\tb"}, {"", "whole"}, {"x", "y"}}, 64);
  const auto expected = [&](const std::string& text) { return log_probability(bigrams, bytes_of(text)); };
  ASSERT_EQ(found.size(), 5);
  EXPECT_NEAR(found[0].log_probability, expected("t sat"), 1e-4);
  EXPECT_NEAR(found[1].log_probability, expected("e\nend"), 1e-4) << "white space belongs to the continuation";
  EXPECT_NEAR(found[2].log_probability, expected("a\tb"), 1e-4);
  Tokens whole = bytes_of("whole");
  whole.insert(whole.begin(), kSeparator);
  EXPECT_NEAR(found[3].log_probability, log_probability(bigrams, whole), 1e-4);
  EXPECT_NEAR(found[4].log_probability, expected("xy"), 1e-4);
}

TEST(Likelihoods, KnowWhatGreedyDecodingGives) {
  LanguageModel model = reciting_model("The quick");
  const auto found =
      likelihoods(model, *byte_tokenizer(), {{"The", " quick"}, {"The", " quack"}, {"Th", " e"}, {"Th", "e"}}, 64);
  EXPECT_TRUE(found[0].greedy);
  EXPECT_FALSE(found[1].greedy);
  EXPECT_FALSE(found[2].greedy);
  EXPECT_TRUE(found[3].greedy) << "no space comes between";
}

class PackedLikelihoods : public ::testing::TestWithParam<MixerChoice> {};
INSTANTIATE_TEST_SUITE_P(Mixer, PackedLikelihoods, ::testing::ValuesIn(every_mixer()),
                         [](const auto& info) { return testing::name_of(info.param); });

TEST_P(PackedLikelihoods, AreThoseOfOneByOne) {
  LanguageModel model = random_model(GetParam(), kVocabulary);
  const std::vector<Continuation> texts{{"one", " two"},
                                        {"a much longer beginning", " of a text"},
                                        {"", "three"},
                                        {"four", " five and six"},
                                        {"7", " 8"}};
  std::vector<int64_t> told;
  const auto packed = likelihoods(model, *byte_tokenizer(), texts, 60, [&](int64_t n) { told.push_back(n); });
  EXPECT_EQ(told, (Tokens{3, 5}));
  const auto alone = likelihoods(model, *byte_tokenizer(), texts, 1);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_NEAR(packed[i].log_probability, alone[i].log_probability, -kEpsilon * alone[i].log_probability);
    EXPECT_EQ(packed[i].greedy, alone[i].greedy);
  }
}

TEST(Likelihoods, ContextAndContinuationAreOneText) {
  const at::Tensor bigrams = random_bigrams();
  LanguageModel model = bigram_model(bigrams);
  const auto found = likelihoods(
      model, PairTokenizer(), {{"a", " b"}, {"a ", "b"}, {"a th", "e"}, {"t", "he"}, {"", "the"}, {"th", "ere"}}, 64);
  const auto expected = [&](const Tokens& tokens) { return log_probability(bigrams, tokens); };
  EXPECT_NEAR(found[0].log_probability, expected({'a', 128 + 'b'}), 1e-4);
  EXPECT_NEAR(found[1].log_probability, expected({'a', 128 + 'b'}), 1e-4) << "a space belongs to the word behind it";
  EXPECT_NEAR(found[2].log_probability, expected({128 + 't', 'h', 'e'}) - expected({128 + 't', 'h'}), 1e-4);
  EXPECT_NEAR(found[3].log_probability, expected({kSeparator, 1}), 1e-4) << "even over the whole of both";
  EXPECT_NEAR(found[4].log_probability, expected({kSeparator, 1}), 1e-4);
  EXPECT_NEAR(found[5].log_probability, expected({'h', 'e'}), 1e-4) << "the harness's: behind as many as t, h";
}

TEST(Likelihoods, OfWhatCannotBeAreMinusInfinity) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  ScoredRows rows({{{0, 1}, 1}, {{0, 2}, 1}}, 64, 3);
  ASSERT_TRUE(rows.next());
  rows.add(at::tensor({0.0f, kNever, 0.0f}).expand({2, 3}));
  EXPECT_EQ(rows.results()[0].log_probability, kNever);
  EXPECT_FALSE(rows.results()[0].greedy);
  EXPECT_NEAR(rows.results()[1].log_probability, -std::log(2), 1e-6);
}

TEST(Likelihoods, OfNoNumbersAreRefused) {
  for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ScoredRows rows({{{0, 1}, 1}}, 64, 3);
    ASSERT_TRUE(rows.next());
    EXPECT_TRUE(fails_with("likelihood: the model's logits are not numbers; its parameters may be broken",
                           [&] { rows.add(at::full({1, 3}, broken)); }));
  }
}

TEST(Likelihoods, NeedSomethingToScore) {
  LanguageModel model = reciting_model("ab");
  EXPECT_TRUE(fails_with("likelihood: expected a continuation, got an empty one after \"a\"",
                         [&] { likelihoods(model, *byte_tokenizer(), {{"a", ""}}, 64); }));
  EXPECT_TRUE(fails_with("likelihood: expected batch_tokens of at least 1, got 0",
                         [&] { likelihoods(model, *byte_tokenizer(), {{"a", "b"}}, 0); }));
  EXPECT_TRUE(fails_with("scored from one of its tokens 1 to 2 on, got 3",
                         [] { ScoredRows({{{1, 2, 3}, 3}}, 64, kVocabulary); }));
}

TEST(Continuation, IsPartedBeforeTheSpace) {
  const std::map<std::pair<std::string, std::string>, std::pair<std::string, std::string>> cases{
      {{"a cat ", "sat"}, {"a cat", " sat"}},
      {{"a line \n\t", "end"}, {"a line", " \n\tend"}},
      {{"a", " b"}, {"a", " b"}},
      {{" ", "b"}, {"", " b"}},
      {{"a\u00a0\u3000 ", "b"}, {"a", "\u00a0\u3000 b"}},
      {{"a\u200b", "b"}, {"a\u200b", "b"}},
      {{"", "b"}, {"", "b"}},
  };
  for (const auto& [given, expected] : cases) {
    const Continuation found = parted_before_space({given.first, given.second});
    EXPECT_EQ(found.context, expected.first);
    EXPECT_EQ(found.continuation, expected.second);
  }
}

}  // namespace
}  // namespace fem
