// The generators: layouts, what counts, distributions, and solvers that know the rules and nothing else.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "support/error_text.h"
#include "tasks/mad/data.h"
#include "tasks/mad/generator.h"

namespace fem {
namespace {

using Tokens = std::vector<int64_t>;

std::vector<Tokens> rows_of(const at::Tensor& set) {
  std::vector<Tokens> rows;
  for (int64_t n = 0; n < set.size(0); ++n) {
    const int64_t* row = set.const_data_ptr<int64_t>() + n * set.size(1);
    rows.emplace_back(row, row + set.size(1));
  }
  return rows;
}

MadDataOptions baseline(MadKind kind, int64_t examples = 400) {
  MadDataOptions options{.kind = kind, .test_examples = examples};
  if (kind != MadKind::kMemorization) options.train_examples = examples;
  return completed_mad_data(options);
}

const std::vector<MadKind>& every_kind() {
  static const std::vector<MadKind> kinds{MadKind::kInContextRecall,  MadKind::kNoisyRecall, MadKind::kFuzzyRecall,
                                          MadKind::kMemorization,     MadKind::kCompression, MadKind::kSelectiveCopying,
                                          MadKind::kLongestIncreasing};
  return kinds;
}

// What solve(example, place) answers at each place that counts: {right, wrong, "I cannot know" = -1}.
struct Solved {
  int64_t right = 0, wrong = 0, unknown = 0;
};
template <typename Solver>
Solved solve(const MadSet& set, Solver&& solver) {
  Solved solved;
  const auto tokens = rows_of(set.tokens), targets = rows_of(set.targets);
  for (size_t n = 0; n < tokens.size(); ++n) {
    const Tokens answers = solver(tokens[n]);
    for (size_t t = 0; t < answers.size(); ++t) {
      if (targets[n][t] == kMadIgnored) continue;
      ++(answers[t] < 0 ? solved.unknown : answers[t] == targets[n][t] ? solved.right : solved.wrong);
    }
  }
  return solved;
}

double share_counted(const MadSet& set) { return set.targets.ne(kMadIgnored).to(at::kDouble).mean().item<double>(); }

TEST(MadExamples, AreTheSameForASeedAndOthersForAnother) {
  for (const MadKind kind : every_kind()) {
    MadDataOptions options = baseline(kind, 20);
    const MadData once = mad_data(options), again = mad_data(options);
    EXPECT_TRUE(at::equal(once.train.tokens, again.train.tokens)) << spelled(kind);
    EXPECT_TRUE(at::equal(once.test.targets, again.test.targets)) << spelled(kind);
    options.seed = 1;
    EXPECT_FALSE(at::equal(once.test.tokens, mad_data(options).test.tokens)) << spelled(kind);
  }
}

TEST(MadExamples, OfTheTestFollowThoseOfTrainingAndRepeatNone) {
  for (const MadKind kind : every_kind()) {
    MadDataOptions options = baseline(kind);
    const MadData data = mad_data(options);
    const auto train = rows_of(data.train.tokens);
    const std::set<Tokens> known(train.begin(), train.end());
    for (const Tokens& row : rows_of(data.test.tokens)) EXPECT_EQ(known.count(row), 0U) << spelled(kind);
    // More of the test changes neither what came before nor the training examples.
    options.test_examples += 7;
    const MadData more = mad_data(options);
    EXPECT_TRUE(at::equal(more.train.tokens, data.train.tokens)) << spelled(kind);
    EXPECT_TRUE(at::equal(more.test.tokens.slice(0, 0, data.test.tokens.size(0)), data.test.tokens)) << spelled(kind);
  }
}

TEST(MadExamples, AllTokensAreOfTheVocabularyAndOfTheStatedLength) {
  const std::map<MadKind, int64_t> tokens{{MadKind::kInContextRecall, 127}, {MadKind::kNoisyRecall, 127},
                                          {MadKind::kFuzzyRecall, 128},     {MadKind::kMemorization, 32},
                                          {MadKind::kCompression, 32},      {MadKind::kSelectiveCopying, 256},
                                          {MadKind::kLongestIncreasing, 32}};
  for (const MadKind kind : every_kind()) {
    const MadDataOptions options = baseline(kind);
    const MadData data = mad_data(options);
    for (const MadSet& set : {data.train, data.test}) {
      EXPECT_EQ(set.tokens.size(1), tokens.at(kind)) << spelled(kind);
      EXPECT_EQ(set.targets.sizes(), set.tokens.sizes());
      EXPECT_GE(set.tokens.min().item<int64_t>(), 0);
      EXPECT_EQ(at::cat({set.tokens.flatten(), set.targets.flatten()}).max().item<int64_t>(), options.vocab_size - 1);
    }
  }
}

// Keys are even places; the answer is the value that stood after the key before.
Tokens recalled(const Tokens& tokens, int64_t keys) {
  Tokens answers(tokens.size(), -1);
  std::map<int64_t, int64_t> value_of;
  for (size_t t = 0; t < tokens.size(); t += 2) {
    if (tokens[t] >= keys) continue;  // noise
    if (value_of.count(tokens[t])) answers[t] = value_of[tokens[t]];
    if (t + 1 < tokens.size()) value_of[tokens[t]] = tokens[t + 1];
  }
  return answers;
}

TEST(MadExamples, RecallIsSolvedByRememberingPairs) {
  for (const MadKind kind : {MadKind::kInContextRecall, MadKind::kNoisyRecall}) {
    const MadData data = mad_data(baseline(kind));
    const Solved solved = solve(data.test, [](const Tokens& tokens) { return recalled(tokens, 8); });
    EXPECT_EQ(solved.wrong, 0) << spelled(kind);
    EXPECT_EQ(solved.unknown, 0) << spelled(kind);
    EXPECT_GT(solved.right, 400 * 30) << spelled(kind);
    // In training every next token is a target.
    EXPECT_TRUE(at::equal(data.train.targets.slice(1, 0, -1), data.train.tokens.slice(1, 1)));
    EXPECT_TRUE(data.train.targets.ne(kMadIgnored).all().item<bool>());
  }
}

TEST(MadExamples, RecallHasTheStatedDistributions) {
  const MadData plain = mad_data(baseline(MadKind::kInContextRecall, 1000));
  EXPECT_NEAR(127 * share_counted(plain.test), 56, 0.3);                     // 64 pairs, 8 of which are new
  const at::Tensor keys = plain.train.tokens.slice(1, 0, 126, 2).flatten();  // the last is one that was seen
  const at::Tensor counts = at::bincount(keys, {}, 8).to(at::kDouble);
  const double expected = static_cast<double>(keys.numel()) / 8;
  // Chi-square with 7 degrees of freedom: mean 7, standard deviation 3.7.
  EXPECT_LT(((counts - expected).square() / expected).sum().item<double>(), 7 + 5 * 3.7);

  MadDataOptions noisy = baseline(MadKind::kNoisyRecall, 1000);
  for (const double noise : {0.2, 0.8}) {
    noisy.noise = noise;
    const at::Tensor slots = mad_data(noisy).train.tokens.slice(1, 0, 126, 2);  // 63 slots, one of 64 is kept free
    const double share = slots.ge(16).to(at::kDouble).mean().item<double>(), stated = noise * 63 / 64;
    EXPECT_NEAR(share, stated, 5 * std::sqrt(noise * (1 - noise) / static_cast<double>(slots.numel())));
  }
}

TEST(MadExamples, FuzzyRecallIsSolvedByRememberingMotifs) {
  const int64_t half = 7, pad = 15;
  const MadData data = mad_data(baseline(MadKind::kFuzzyRecall, 2000));
  const Solved solved = solve(data.test, [&](const Tokens& tokens) {
    Tokens answers(tokens.size(), -1), key, value;
    std::map<Tokens, Tokens> value_of;
    for (size_t t = 0; t < tokens.size(); ++t) {
      const bool in_key = tokens[t] < half;
      if (in_key && !value.empty()) {
        value_of[key] = value;
        key.clear();
        value.clear();
      }
      if (tokens[t] != pad) (in_key ? key : value).push_back(tokens[t]);
      const auto known = value_of.find(key);
      if (key.size() == 3 && known != value_of.end() && value.size() < known->second.size())
        answers[t] = known->second[value.size()];
    }
    return answers;
  });
  EXPECT_EQ(solved.wrong, 0);
  // The last pair did not fit in before where its first place was drawn too late, which is at most one in forty.
  EXPECT_LT(static_cast<double>(solved.unknown), 0.025 * static_cast<double>(solved.right));
  EXPECT_GT(solved.unknown, 0);
  EXPECT_NEAR(128 * share_counted(data.test), 4.5, 0.4);
}

TEST(MadExamples, FuzzyRecallDrawsKeysOfAnyLengthInTrainingAndOfThreeInTheTest) {
  const MadData data = mad_data(baseline(MadKind::kFuzzyRecall, 300));
  const auto key_sizes = [](const at::Tensor& set) {
    std::map<int64_t, int64_t> sizes;
    for (const Tokens& row : rows_of(set)) {
      int64_t run = 0;
      for (const int64_t token : row) {
        if (token < 7) {
          ++run;
        } else if (run > 0) {
          ++sizes[run];
          run = 0;
        }
      }
    }
    return sizes;
  };
  EXPECT_EQ(key_sizes(data.test.tokens).size(), 1U);
  EXPECT_EQ(key_sizes(data.test.tokens).begin()->first, 3);
  const auto sizes = key_sizes(data.train.tokens);
  ASSERT_EQ(sizes.size(), 3U);
  double all = 0;
  for (const auto& [size, count] : sizes) all += static_cast<double>(count);
  for (const auto& [size, count] : sizes) EXPECT_NEAR(count / all, 1.0 / 3, 0.03) << size;
}

TEST(MadExamples, MemorizationIsSolvedByATableOfTheTrainingExamples) {
  const MadData data = mad_data(baseline(MadKind::kMemorization));
  std::map<int64_t, int64_t> value_of;
  const auto tokens = rows_of(data.train.tokens), targets = rows_of(data.train.targets);
  for (size_t n = 0; n < tokens.size(); ++n)
    for (size_t t = 0; t < tokens[n].size(); t += 2) {
      EXPECT_EQ(tokens[n][t + 1], 255);
      EXPECT_EQ(targets[n][t], kMadIgnored);
      const auto [known, is_new] = value_of.emplace(tokens[n][t], targets[n][t + 1]);
      EXPECT_EQ(known->second, targets[n][t + 1]);
    }
  EXPECT_EQ(value_of.size(), 127U);
  std::set<int64_t> values;
  for (const auto& [key, value] : value_of) {
    EXPECT_LT(key, 127);
    EXPECT_TRUE(value >= 127 && value < 255);
    values.insert(value);
  }
  EXPECT_EQ(values.size(), 127U);  // each belongs to one key
  const Solved solved = solve(data.test, [&](const Tokens& row) {
    Tokens answers(row.size(), -1);
    for (size_t t = 1; t < row.size(); t += 2) answers[t] = value_of.at(row[t - 1]);
    return answers;
  });
  EXPECT_EQ(solved.wrong + solved.unknown, 0);
  EXPECT_EQ(solved.right, 400 * 16);
}

TEST(MadExamples, CompressionAsksForAllTokensAgain) {
  const MadData data = mad_data(baseline(MadKind::kCompression));
  EXPECT_TRUE(at::equal(data.test.tokens, data.test.targets));
  EXPECT_TRUE(data.test.tokens.select(1, 31).eq(15).all().item<bool>());
  EXPECT_TRUE(data.test.tokens.slice(1, 0, 31).lt(15).all().item<bool>());
}

TEST(MadExamples, SelectiveCopyingIsSolvedByLeavingOutBlanks) {
  for (const int64_t copied : {16, 96}) {
    MadDataOptions options = baseline(MadKind::kSelectiveCopying);
    options.copied = copied;
    const MadData data = mad_data(options);
    const Solved solved = solve(data.test, [&](const Tokens& row) {
      Tokens content, answers(row.size(), -1);
      for (const int64_t token : row)
        if (token < 14) content.push_back(token);
      std::copy(content.begin(), content.end(), answers.end() - copied);
      return answers;
    });
    EXPECT_EQ(solved.wrong + solved.unknown, 0);
    EXPECT_EQ(solved.right, 400 * copied);
    const int64_t at = 256 - copied - 1;
    EXPECT_TRUE(data.test.tokens.select(1, at).eq(15).all().item<bool>());
    EXPECT_TRUE(data.test.tokens.select(1, at - 1).lt(14).all().item<bool>());  // no blank after the last token
    EXPECT_TRUE(data.test.tokens.slice(1, at + 1).eq(14).all().item<bool>());
  }
}

// The class of the longest increasing one of all subsequences of each beginning of a row.
Tokens longest_of_all_subsequences(const Tokens& row) {
  Tokens longest(row.size(), 0);
  for (uint32_t chosen = 1; chosen < 1U << row.size(); ++chosen) {
    Tokens picked;
    size_t last = 0;
    for (size_t t = 0; t < row.size(); ++t)
      if (chosen >> t & 1U) picked.push_back(row[last = t]);
    if (std::adjacent_find(picked.begin(), picked.end(), std::greater_equal<>()) != picked.end()) continue;
    for (size_t t = last; t < row.size(); ++t) longest[t] = std::max<int64_t>(longest[t], picked.size() - 1);
  }
  return longest;
}

TEST(MadExamples, LongestIncreasingIsThatOfAllSubsequences) {
  for (const int64_t numbers : {2, 5, 32}) {  // with few of them most are equal
    MadDataOptions options{.kind = MadKind::kLongestIncreasing, .vocab_size = numbers, .length = 11};
    options.train_examples = options.test_examples = 40;
    const MadData data = mad_data(completed_mad_data(options));
    for (const MadSet& set : {data.train, data.test}) {
      const Solved solved = solve(set, longest_of_all_subsequences);
      EXPECT_EQ(solved.wrong + solved.unknown, 0);
      EXPECT_EQ(solved.right, 40 * 11);
    }
  }
}

// What can be named without reading: the likeliest length at each place. A model has to be better.
TEST(MadExamples, LongestIncreasingIsNotKnownByItsPlace) {
  const MadData data = mad_data(baseline(MadKind::kLongestIncreasing, 4000));
  const at::Tensor likeliest = std::get<0>(data.train.targets.mode(0));
  EXPECT_NEAR(data.test.targets.eq(likeliest).to(at::kDouble).mean().item<double>(), 0.43, 0.01);
}

TEST(MadExamples, ThatCannotBeAreRefused) {
  const auto making = [](MadDataOptions options) { return [options] { completed_mad_data(options); }; };
  using testing::fails_with;
  EXPECT_TRUE(fails_with("expected an even data.length of at least 4 for recall, got 31", making({.length = 31})));
  EXPECT_TRUE(fails_with("data.vocab_size of at least 18 for recall with 16 tokens of noise, got 16",
                         making({.kind = MadKind::kNoisyRecall, .vocab_size = 16})));
  EXPECT_TRUE(fails_with("data.vocab_size of at least 7 for fuzzy_recall",
                         making({.kind = MadKind::kFuzzyRecall, .vocab_size = 6})));
  EXPECT_TRUE(
      fails_with("more than twice data.copied, 16,", making({.kind = MadKind::kSelectiveCopying, .length = 32})));
  EXPECT_TRUE(fails_with("data.vocab_size of at least 2 for longest_increasing, got 1",
                         making({.kind = MadKind::kLongestIncreasing, .vocab_size = 1})));
  EXPECT_TRUE(fails_with("data.noise from 0 to 1, got 1.5", making({.noise = 1.5})));
  EXPECT_TRUE(fails_with("data.train_examples from 1 to 16777216, got -1", making({.train_examples = -1})));
}

TEST(MadScore, MacroAccuracyIsTheMeanRecallOfTheClassesThatOccur) {
  // Class 0: 2 of 3 named; class 1: 1 of 1; class 3 is only ever named wrongly; class 2 does not occur.
  const at::Tensor targets = at::tensor({0, 0, 0, 1}, at::kLong), predicted = at::tensor({0, 0, 3, 1}, at::kLong);
  EXPECT_DOUBLE_EQ(macro_accuracy(predicted, targets, 4), (2.0 / 3 + 1 + 0) / 3);
  MadScore score;
  score.add(at::one_hot(predicted, 4).to(at::kFloat) * 100, targets);
  score.add(at::zeros({2, 4}), at::full({2}, kMadIgnored, at::kLong));  // nothing counts
  EXPECT_DOUBLE_EQ(score.hits / score.targets, 0.75);
  EXPECT_DOUBLE_EQ(score.recall / score.batches, (2.0 / 3 + 1) / 3);
  EXPECT_NEAR(score.nats, 100, 1e-4);
}

}  // namespace
}  // namespace fem
