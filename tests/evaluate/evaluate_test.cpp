#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "data/sampler.h"
#include "data/token_stream.h"
#include "evaluate/perplexity.h"
#include "evaluate/tasks.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"
#include "text/bigrams.h"

namespace fem {
namespace {

using testing::bigram_model;
using testing::bytes_of;
using testing::every_mixer;
using testing::fails_with;
using testing::kSeparator;
using testing::kVocabulary;
using testing::log_probability;
using testing::random_bigrams;
using testing::random_model;
using testing::reciting_model;
using testing::TemporaryFolder;
using Tokens = std::vector<int64_t>;

constexpr double kEpsilon = 1e-5;

class MeasurePerplexity : public TemporaryFolder {
 protected:
  // Documents behind a separator each.
  TokenStream stream_of(const std::vector<std::string>& documents) {
    tokens.clear();
    int64_t bytes = 0;
    for (const std::string& document : documents) {
      tokens.push_back(kSeparator);
      for (const int64_t token : bytes_of(document)) tokens.push_back(token);
      bytes += static_cast<int64_t>(document.size());
    }
    write_token_shard(folder, 0, 1, tokens, bytes, *byte_tokenizer());
    return TokenStream::open(folder, byte_tokenizer()->fingerprint());
  }

  Tokens tokens;
};

TEST_F(MeasurePerplexity, SumsWhatEveryTokenCosts) {
  const at::Tensor bigrams = random_bigrams();
  LanguageModel model = bigram_model(bigrams);
  const TokenStream stream = stream_of({"to be or not to be", "that is the question"});
  const Perplexity found = measure_perplexity(model, stream, {.length = 7, .batch_rows = 2});
  EXPECT_EQ(found.tokens, 39);
  EXPECT_EQ(found.bytes, 38);
  const double nats = -log_probability(bigrams, tokens);
  EXPECT_NEAR(found.nats, nats, kEpsilon * nats);
  EXPECT_DOUBLE_EQ(found.loss(), found.nats / 39);
  EXPECT_DOUBLE_EQ(found.perplexity(), std::exp(found.nats / 39));
  EXPECT_DOUBLE_EQ(found.bits_per_byte(), found.nats / std::numbers::ln2 / 38);
}

TEST_F(MeasurePerplexity, ReadsEveryRowAndDocumentAlone) {
  LanguageModel model = random_model(every_mixer()[1], kVocabulary);
  const TokenStream stream = stream_of({"to be or not to be", "that is", "the question"});
  const int64_t length = 8;
  double nats = 0;
  const at::NoGradGuard no_gradients;
  const at::Tensor all = at::tensor(tokens).unsqueeze(0);
  for (int64_t begin = 0, end; begin + 1 < all.size(1); begin = end) {
    end = begin + 1;
    while (end + 1 < all.size(1) && end % length != 0 && tokens[end] != kSeparator) ++end;
    nats += model->surprise(all.slice(1, begin, end), all.slice(1, begin + 1, end + 1)).sum().item<double>();
  }
  EXPECT_NEAR(measure_perplexity(model, stream, {.length = length, .batch_rows = 3}).nats, nats, kEpsilon * nats);
  EXPECT_NEAR(measure_perplexity(model, stream, {.length = length, .batch_rows = 1}).nats, nats, kEpsilon * nats);
  Perplexity parts;
  for (const int64_t part : {0, 1}) {
    const Perplexity own =
        measure_perplexity(model, stream, {.length = length, .batch_rows = 2, .part = part, .parts = 2});
    parts.nats += own.nats;
    parts.tokens += own.tokens;
  }
  EXPECT_NEAR(parts.nats, nats, kEpsilon * nats) << "two processes share the text";
  EXPECT_GT(std::abs(measure_perplexity(model, stream, {.length = 3, .batch_rows = 1}).nats - nats), 1e-2)
      << "the length must matter";
}

TEST_F(MeasurePerplexity, ReadsAPartWhenAsked) {
  const at::Tensor bigrams = random_bigrams();
  LanguageModel model = bigram_model(bigrams);
  const TokenStream stream = stream_of({std::string(100, 'x') + "y"});
  std::vector<int64_t> told;
  const Perplexity found = measure_perplexity(
      model, stream,
      {.length = 5, .batch_rows = 2, .max_tokens = 25, .on_read = [&](int64_t n, int64_t) { told.push_back(n); }});
  EXPECT_EQ(told, (Tokens{10, 20, 25}));
  EXPECT_EQ(found.tokens, 25);
  EXPECT_EQ(found.bytes, 25);
  const double nats = -log_probability(bigrams, Tokens(tokens.begin(), tokens.begin() + 26));
  EXPECT_NEAR(found.nats, nats, kEpsilon * nats);
  EXPECT_TRUE(fails_with("batch_rows of at least 1",
                         [&] { measure_perplexity(model, stream, {.length = 5, .batch_rows = 0}); }));
}

class Task : public TemporaryFolder {
 protected:
  std::filesystem::path file_of(const std::string& lines) {
    write(folder / "questions.jsonl", lines);
    return folder / "questions.jsonl";
  }
  TaskScore score(LanguageModel model, const std::string& lines, int64_t limit = 0) {
    return score_task(model, *byte_tokenizer(), file_of(lines), 256, limit);
  }
};

TEST_F(Task, MinimalPairsAreWonByTheLikelierSentence) {
  const TaskScore found =
      score(reciting_model("The quick"), R"({"sentence_good": "quick", "sentence_bad": "quikc", "UID": "spelling"})"
                                         "\n"
                                         R"({"sentence_good": "kciuq", "sentence_bad": "quick", "UID": "spelling"})"
                                         "\n");
  EXPECT_EQ(found.name, "questions");
  EXPECT_EQ(found.questions, 2);
  EXPECT_DOUBLE_EQ(found.accuracy, 0.5);
  EXPECT_DOUBLE_EQ(found.standard_error, 0.5);
}

TEST_F(Task, ChoicesAreComparedWholeAndByTheCharacter) {
  // "quick" is likelier a character than "z", but longer.
  const TaskScore found =
      score(reciting_model("The quick"), R"({"query": "The", "choices": ["z", "quick ", "y"], "gold": 1})");
  EXPECT_EQ(found.accuracy, 0);
  EXPECT_EQ(found.normalized_accuracy, 1);
  EXPECT_TRUE(std::isnan(found.standard_error));
  // All bytes equally likely: 7 (with the space) for 2 characters against 5 for 4. By the byte 7 / 6 against 5 / 4.
  const TaskScore wide = score(bigram_model(at::zeros({kVocabulary, kVocabulary})),
                               R"({"query": "", "choices": ["日本", "abcd"], "gold": 1})");
  EXPECT_EQ(wide.normalized_accuracy, 1);
}

TEST_F(Task, ASpaceStandsBeforeEveryContinuation) {
  const at::Tensor bigrams = random_bigrams();
  const auto log_probabilities = [&](const std::string& line) {
    return score(bigram_model(bigrams), line).log_probabilities;
  };
  const auto expected = [&](const std::string& text, bool begins = false) {
    Tokens tokens = bytes_of(text);
    if (begins) tokens.insert(tokens.begin(), kSeparator);
    return log_probability(bigrams, tokens);
  };
  const auto pair = log_probabilities(R"({"sentence_good": "a b", "sentence_bad": "b a"})");
  EXPECT_NEAR(pair[0][0], expected(" a b", true), 1e-4);
  EXPECT_NEAR(pair[0][1], expected(" b a", true), 1e-4);
  const auto choices = log_probabilities(R"({"query": "why?\n", "choices": ["so", " no"], "gold": 0})");
  EXPECT_NEAR(choices[0][0], expected("?\n so"), 1e-4) << "the line end belongs to the continuation";
  EXPECT_NEAR(choices[0][1], expected("?\n  no"), 1e-4);
  const auto last = log_probabilities(R"({"context": "to be or", "continuation": "not"})");
  EXPECT_NEAR(last[0][0], expected("r not"), 1e-4);
}

TEST_F(Task, AnEndingFindsItsBeginning) {
  const std::string line = R"({"context_options": ["The", "A"], "continuation": "quick", "gold": )";
  LanguageModel model = reciting_model("e quick");
  at::Tensor head = model->named_parameters()["head.weight"];
  {
    const at::NoGradGuard no_gradients;
    head.select(1, 'A').select(0, ' ').fill_(-1);
  }
  EXPECT_EQ(score(model, line + "0}\n").accuracy, 1);
  EXPECT_EQ(score(model, line + "1}\n").accuracy, 0);
}

TEST_F(Task, ALastWordMustBeWhatGreedyDecodingGives) {
  const std::string right = R"({"context": "The", "continuation": "quick"})",
                    wrong = R"({"context": "Th", "continuation": "e"})";
  LanguageModel model = reciting_model("The quick");
  const TaskScore found = score(model, right + "\n\n" + wrong + "\n" + wrong + "\n" + right + "\n");
  EXPECT_EQ(found.accuracy, 0.5);
  EXPECT_EQ(found.normalized_accuracy, 0.5);
  EXPECT_NEAR(found.standard_error, std::sqrt(0.25 / 3), 1e-12);
  const auto each = likelihoods(model, *byte_tokenizer(), {{"The", " quick"}, {"Th", " e"}}, 64);
  EXPECT_NEAR(found.perplexity, std::exp(-(each[0].log_probability + each[1].log_probability) / 2), 1e-3);
  EXPECT_EQ(score(model, right + "\n" + wrong + "\n", 1).questions, 1);
  EXPECT_EQ(score(model, right + "\n" + wrong + "\n", 1).accuracy, 1);
}

TEST_F(Task, OfEqualChoicesTheFirstIsTaken) {
  LanguageModel model = bigram_model(at::zeros({kVocabulary, kVocabulary}));
  EXPECT_EQ(score(model, R"({"query": "", "choices": ["ab", "ba"], "gold": 0})").accuracy, 1);
  EXPECT_EQ(score(model, R"({"query": "", "choices": ["ab", "ba"], "gold": 1})").accuracy, 0);
}

TEST_F(Task, EachMalformedLineIsNamed) {
  const std::string good = R"({"context": "a", "continuation": "b"})";
  const auto after_good = [&](const std::string& line) {
    return [this, text = good + "\n" + line] { read_task(file_of(text)); };
  };
  const std::string place = "task: line 2 of " + (folder / "questions.jsonl").string() + ": ";
  EXPECT_TRUE(fails_with(place + "expected JSON, but line 1, column 2", after_good("{broken")));
  EXPECT_TRUE(fails_with(place + "expected a JSON object, got \"[1]\"", after_good("[1]")));
  EXPECT_TRUE(fails_with("expected a JSON object", after_good(R"("answer")")));
  EXPECT_TRUE(
      fails_with("or context and continuation; got question, reply", after_good(R"({"question": "a", "reply": "b"})")));
  EXPECT_TRUE(fails_with("expected \"sentence_bad\" as text, got none", after_good(R"({"sentence_good": "a"})")));
  EXPECT_TRUE(
      fails_with("expected \"query\" as text, got 3", after_good(R"({"query": 3, "choices": ["a", "b"], "gold": 0})")));
  EXPECT_TRUE(fails_with("expected \"choices\" as a list of two texts or more, got [\"a\"]",
                         after_good(R"({"query": "q", "choices": ["a"], "gold": 0})")));
  EXPECT_TRUE(fails_with("expected \"choices\" as a list of two texts or more, got [\"a\",1]",
                         after_good(R"({"query": "q", "choices": ["a", 1], "gold": 0})")));
  for (const char* gold : {"2", "-1", "0.5", "\"a\"", "null"})
    EXPECT_TRUE(fails_with(std::string("expected \"gold\" as a number from 0 to 1, got ") + gold,
                           after_good(R"({"query": "q", "choices": ["a", "b"], "gold": )" + std::string(gold) + "}")));
  EXPECT_TRUE(fails_with("expected something to predict in \"continuation\", got an empty text",
                         after_good(R"({"context": "a", "continuation": ""})")));
  EXPECT_TRUE(fails_with("expected something to predict in \"choices\"",
                         after_good(R"({"query": "q", "choices": ["a", ""], "gold": 0})")));
  EXPECT_TRUE(fails_with("expected at least one question", [&] { read_task(file_of("\n\n")); }));
  EXPECT_TRUE(fails_with("cannot be read", [&] { read_task(folder / "absent.jsonl"); }));
  EXPECT_TRUE(fails_with("cannot be read", [&] { read_task(folder); }));
}

}  // namespace
}  // namespace fem
