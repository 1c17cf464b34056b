#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/small_corpora.h"
#include "support/error_text.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using testing::CorpusOf;
using testing::fails_with;
using testing::lines;

TEST_F(CorpusOf, OneFileIsSplitAtALineAndKeepsItsOrder) {
  const std::string content = lines(1000);
  add("a.txt", content);
  const Corpus corpus = prepare_corpus(options({"a.txt"}));
  const std::string train = text_of(*corpus.tokenizer, corpus.train);
  const std::string validation = text_of(*corpus.tokenizer, corpus.validation);
  EXPECT_EQ(train.substr(1) + validation.substr(1), content);
  EXPECT_EQ(train[0], '|');
  EXPECT_EQ(validation.substr(0, 6), "|line ");
  EXPECT_EQ(corpus.validation.bytes(), corpus.validation.size() - 1);
  EXPECT_NEAR(static_cast<double>(corpus.validation.bytes()) / content.size(), 0.1, 0.002);
  EXPECT_EQ(corpus.train.bytes() + corpus.validation.bytes(), static_cast<int64_t>(content.size()));
}

TEST_F(CorpusOf, TextWithoutLinesIsCutBetweenCharacters) {
  std::string content;
  for (int i = 0; i < 101; ++i) content += "語";
  add("a.txt", content);
  const Corpus corpus = prepare_corpus(options({"a.txt"}));
  EXPECT_EQ(corpus.validation.bytes() % 3, 0);
  EXPECT_NEAR(corpus.validation.bytes(), 30, 3);
}

TEST_F(CorpusOf, AFolderHoldsDocumentsInAFixedRandomOrder) {
  for (int i = 0; i < 20; ++i) add("part" + std::to_string(i % 3) + "/" + std::to_string(i) + ".txt", lines(5));
  const TextFiles found = find_text_files({text().string()}, cache());
  std::vector<std::string> names;
  for (const TextFile& file : found.files) names.push_back(file.name);
  ASSERT_EQ(names.size(), 20u);
  EXPECT_FALSE(std::is_sorted(names.begin(), names.end()));
  fs::rename(text(), folder / "moved");
  const TextFiles moved = find_text_files({(folder / "moved/").string()}, cache());
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(moved.files[i].name, names[i]);
}

TEST_F(CorpusOf, FoldersSkipWhatIsHiddenEmptyOrNotText) {
  add("a.txt", lines(40, "seen"));
  add(".hidden", "secret");
  add(".git/config", "secret");
  add("empty.txt", "");
  add("picture.png", "\x89PNG\xff\xfe");
  add("zeros", std::string(10, '\0'));
  ::testing::internal::CaptureStderr();
  const std::string train = train_text(options({""}));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(train.begin(), train.end(), '|'), 1);
  EXPECT_EQ(train.substr(0, 8), "|seen 0\n");
  EXPECT_EQ(read(made() / "corpus.json").find("picture"), std::string::npos);
  EXPECT_NE(read(made() / "corpus.json").find("a.txt"), std::string::npos);
  EXPECT_NE(said.find("passed over 2 hidden files and folders and 2 files that are not UTF-8 text"), std::string::npos)
      << said;
}

TEST_F(CorpusOf, PatternsFindFilesAndFolders) {
  add("a.txt", lines(3));
  add("b.md", lines(3));
  add("deep/c.txt", lines(3));
  add("deep/er/d.txt", lines(3));
  const auto names = [&](const std::string& pattern) {
    std::set<std::string> names;
    for (const TextFile& file : find_text_files({(text() / pattern).string()}, cache()).files) names.insert(file.name);
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(names("*.txt"), (Names{"a.txt"}));
  EXPECT_EQ(names("*.{txt,md}"), (Names{"a.txt", "b.md"}));
  EXPECT_EQ(names("d*"), (Names{"deep/c.txt", "deep/er/d.txt"}));
  EXPECT_EQ(names("**/*.txt"), (Names{"a.txt", "deep/c.txt", "deep/er/d.txt"}));
  EXPECT_EQ(find_text_files({(text() / "a.txt").string(), text().string()}, cache()).files.size(), 4u);
  EXPECT_TRUE(is_refused(options({"*.rst"}), "no file matches " + (text() / "*.rst").string()));
  EXPECT_TRUE(is_refused(options({"**/*.rst"}), "no file matches "));
}

TEST_F(CorpusOf, JsonLinesAreDocuments) {
  std::string content;
  for (int i = 0; i < 50; ++i)
    content += R"({"id": 1, "text": "one\ntwo é"})"
               "\n\n";
  add("a.jsonl", content);
  const Corpus corpus = prepare_corpus(options({"a.jsonl"}));
  const std::string train = text_of(*corpus.tokenizer, corpus.train);
  EXPECT_EQ(train.substr(0, 20), "|one\ntwo é|one\ntwo ");
  EXPECT_EQ(corpus.train.bytes() + corpus.validation.bytes(), 50 * 10);
  EXPECT_EQ(corpus.validation.bytes() % 10, 0);
  const std::string nested = std::string(66'000, '[') + std::string(66'000, ']');
  const auto no_text = [](const std::string& line) { return "expected a JSON object with a \"text\", got " + line; };
  for (const auto& [broken, reason] :
       {std::pair<std::string, std::string>{R"({"title": "x"})", no_text(R"({"title": "x"})")},
        {R"({"text": 3})", no_text(R"({"text": 3})")},
        {"[]", no_text("[]")},
        {R"({"text": "a)", "expected JSON, but line 1, column 12"},
        {R"({"text": "a", "text": "b"})", "key \"text\" appears twice"},
        {R"({"text": "a", "b": )" + nested + "}", "at most 64 levels"}}) {
    fs::remove_all(cache());
    // The first of two: the other is in the validation text.
    add("b.jsonl", "{\"text\": \"fine\"}\n\n" + broken + "\n" + content + "{\"text\": 4}\n");
    EXPECT_TRUE(is_refused(options({"b.jsonl"}), "b.jsonl line 3: "));
    EXPECT_TRUE(is_refused(options({"b.jsonl"}), reason));
  }
}

TEST_F(CorpusOf, ValidationFilesAreNotTrainedOn) {
  add("train/a.txt", lines(20, "train"));
  add("train/held.txt", lines(20, "held"));
  const Corpus corpus = prepare_corpus(options({"train"}, {"train/held.txt"}));
  EXPECT_EQ(text_of(*corpus.tokenizer, corpus.train), "|" + lines(20, "train"));
  EXPECT_EQ(text_of(*corpus.tokenizer, corpus.validation), "|" + lines(20, "held"));
  EXPECT_TRUE(fails_with("every training file is also a validation file",
                         [&] { prepare_corpus(options({"train/a.txt"}, {"train/a.txt"})); }));
}

TEST_F(CorpusOf, ValidationAloneCanBeMade) {
  add("a.txt", lines(20));
  const Corpus corpus = prepare_corpus(options({}, {"a.txt"}), byte_tokenizer());
  EXPECT_EQ(corpus.train.size(), 0);
  EXPECT_EQ(text_of(*corpus.tokenizer, corpus.validation), "|" + lines(20));
}

TEST_F(CorpusOf, ATokenizerIsTrainedOnceOnTheTrainingText) {
  add("a.txt", lines(2000) + lines(200, "Ω"));
  CorpusOptions trained = options({"a.txt"});
  trained.tokenizer = "sentencepiece:280";
  trained.validation_fraction = 0.08;
  const Corpus corpus = prepare_corpus(trained);
  EXPECT_EQ(corpus.tokenizer->vocab_size(), 280);
  EXPECT_EQ(corpus.tokenizer->encode("Ω").size(), 2u);  // never seen in training: its bytes
  EXPECT_EQ(text_of(*corpus.tokenizer, corpus.train).substr(0, 14), "|line 0\nline 1");
  const fs::path folder = made();
  EXPECT_EQ(prepare_corpus(trained).tokenizer->fingerprint(), corpus.tokenizer->fingerprint());
  prepare_corpus(trained, corpus.tokenizer);  // a run that goes on
  EXPECT_EQ(made(), folder);
  trained.tokenizer = (folder / "tokenizer.model").string();
  EXPECT_TRUE(at::equal(prepare_corpus(trained).train.read(0, 100), corpus.train.read(0, 100)));
}

TEST_F(CorpusOf, LongFilesBecomeSeveralShards) {
  std::string content;
  while (content.size() < (5 << 20)) content += lines(20000, "a line of some length é");
  add("a.txt", content);
  const Corpus corpus = prepare_corpus(options({"a.txt"}));
  EXPECT_TRUE(fs::exists(made() / "train" / "shard-00001.safetensors"));
  const at::Tensor tokens = corpus.train.read(0, corpus.train.size());
  const at::Tensor bytes = at::from_blob(content.data(), {tokens.numel() - 1}, at::kByte);
  EXPECT_TRUE(at::equal(tokens.slice(0, 1), bytes.to(at::kLong)));
}

TEST_F(CorpusOf, BadTextIsRefusedInASentence) {
  add("latin.txt", "caf\xe9 au lait");
  add("zero.txt", std::string("ab\0c", 4));
  add("empty.txt", " \n");
  add("x", "x");
  add("only/picture.png", "\xff\xd8");
  EXPECT_TRUE(is_refused(options({}), "expected files of UTF-8 text, got none"));
  EXPECT_TRUE(is_refused(options({"nothing.txt"}), "nothing.txt cannot be read: No such file"));
  EXPECT_TRUE(is_refused(options({"latin.txt"}), "latin.txt is not UTF-8 text: it has the byte 233 at position 3"));
  EXPECT_TRUE(is_refused(options({"zero.txt"}), "zero.txt is not UTF-8 text: it has the byte 0 at position 2"));
  EXPECT_TRUE(is_refused(options({"empty.txt"}), "empty.txt is empty, expected a file with text"));
  EXPECT_TRUE(is_refused(options({"x"}), "expected at least 2 tokens of "));
  EXPECT_TRUE(is_refused(options({"only"}), "none of the 1 training files holds UTF-8 text"));
  CorpusOptions device = options({"x"});
  device.train = {"/dev/zero"};
  EXPECT_TRUE(is_refused(device, "/dev/zero is not a file with text"));
}

TEST_F(CorpusOf, BadOptionsAreRefusedInASentence) {
  add("a.txt", lines(50));
  CorpusOptions bad = options({"a.txt"});
  bad.validation_fraction = 1;
  EXPECT_TRUE(is_refused(bad, "expected a validation_fraction between 0 and 1, got 1"));
  bad = options({"a.txt"});
  bad.tokenizer = "sentencepiece:many";
  EXPECT_TRUE(is_refused(bad, "expected a tokenizer as sentencepiece:N"));
  bad.tokenizer = "sentencepiece:30000";
  EXPECT_TRUE(is_refused(bad, "30000 pieces cannot be trained on "));
  bad.tokenizer = "words";
  EXPECT_TRUE(is_refused(bad, "expected the tokenizer as bytes, sentencepiece:N or a SentencePiece file, got words"));
  bad.tokenizer = (text() / "a.txt").string();
  EXPECT_TRUE(is_refused(bad, "a.txt is not a SentencePiece model"));
  bad = options({"a.txt"});
  bad.cache = text() / "a.txt" / "cache";
  EXPECT_TRUE(fails_with("cannot be made: Not a directory", [&] { prepare_corpus(bad); }));
}

}  // namespace
}  // namespace fem
