#include "fem/text/tokenizer.h"

#include <ATen/ATen.h>

#include <sstream>

#include "data/corpus.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"
#include "text/pieces.h"

namespace fem {
namespace {

using testing::fails_with;

const std::vector<std::string>& awkward_texts() {
  static const std::vector<std::string> texts{
      "",
      " ",
      "\n",
      "hello world",
      "  two  spaces\n\n\tand tabs\t\t\n    indented   \n",
      "\r\n line ends\r\n",
      "日本語 텍스트 العربية",
      "😀👩‍👩‍👧 e\u0301 \u00a0",
      "a\u2581b \u2581\u2581 c\u2581",
      "<s> </s> <unk> <0x0A>",
      "\u2585 \ufeff 12345",
      std::string("zero\0byte", 9),
  };
  return texts;
}

// Something like a program, of a few hundred words.
std::string prose() {
  const std::vector<std::string> syllables{"ra", "lo", "min", "te", "qua", "sub", "vor", "ent", "ix", "po"};
  std::ostringstream text;
  for (int i = 0; i < 600; ++i) {
    const std::string word = syllables[i % 10] + syllables[i / 3 % 10] + syllables[i / 7 % 10];
    text << "def " << word << "(value, other):\n    return value * " << i << " + other  # the " << word << "\n\n";
  }
  return text.str();
}

const Tokenizer& trained() {
  static const TokenizerPtr tokenizer = train_sentencepiece({prose()}, 400);
  return *tokenizer;
}

class OneText : public Sentences {
 public:
  explicit OneText(std::string text) : text_(std::move(text)) {}
  bool next(std::string& sentence) override {
    sentence = std::exchange(text_, "");
    return !sentence.empty();
  }

 private:
  std::string text_;
};

class TokenizerFiles : public testing::TemporaryFolder {
 protected:
  // A model as others train them: a space before every text.
  std::filesystem::path foreign_model(TrainerSettings settings) {
    settings.insert({{"model_type", "bpe"},
                     {"vocab_size", "300"},
                     {"byte_fallback", "true"},
                     {"normalization_rule_name", "identity"},
                     {"remove_extra_whitespaces", "false"},
                     {"max_sentence_length", "100000"},
                     {"minloglevel", "2"}});
    OneText text(prose());
    std::string model;
    EXPECT_EQ(sentencepiece_library().train(settings, text, model), "");
    write(folder / "foreign.model", model);
    return folder / "foreign.model";
  }
};

TEST_F(TokenizerFiles, EveryTableOfNormalisationsOfTheLibraryIsSound) {
  for (const char* rule : {"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"}) {
    const TokenizerPtr tokenizer = sentencepiece_tokenizer(foreign_model({{"normalization_rule_name", rule}}));
    const bool normalizes = std::string(rule) != "identity";
    EXPECT_EQ(tokenizer->encode("\ufb01") == tokenizer->encode("fi"), normalizes) << rule;
  }
}

TEST(ByteTokenizer, KeepsAnyBytes) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const TokenizerPtr bytes = byte_tokenizer();
  const std::vector<int64_t> tokens = bytes->encode(all);
  ASSERT_EQ(tokens.size(), 256u);
  EXPECT_EQ(tokens[255], 255);
  EXPECT_EQ(bytes->decode(tokens), all);
  EXPECT_EQ(bytes->decode({104, bytes->separator(), 105}), "hi");
  EXPECT_EQ(bytes->vocab_size(), 257);
  EXPECT_TRUE(fails_with("expected tokens of 0 to 256, got 257", [&] { bytes->decode({257}); }));
}

TEST(SentencePiece, KeepsEveryText) {
  for (const std::string& text : awkward_texts()) EXPECT_EQ(trained().decode(trained().encode(text)), text);
}

TEST(SentencePiece, DecodesTokenByTokenToTheSameBytes) {
  for (const std::string& text : awkward_texts()) {
    std::string joined;
    for (const int64_t token : trained().encode(text)) joined += trained().decode({token});
    EXPECT_EQ(joined, text);
  }
  EXPECT_EQ(trained().decode({trained().separator()}), "");
}

TEST(SentencePiece, LearnsFromItsText) {
  const std::string text = prose();
  EXPECT_EQ(trained().vocab_size(), 400);
  EXPECT_LT(trained().encode(text).size(), text.size() / 2);
}

TEST(SentencePiece, LongTextsAreEncodedAsIfInOnePiece) {
  std::string text;
  while (text.size() < 200000) text += prose();
  std::vector<int64_t> by_line;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin + 1), text.size());
    for (const int64_t token : trained().encode(text.substr(begin, end - begin))) by_line.push_back(token);
    begin = end;
  }
  EXPECT_EQ(trained().encode(text), by_line);
  EXPECT_EQ(trained().decode(by_line), text);
}

TEST(SentencePiece, TrainingIsRepeatable) {
  EXPECT_EQ(train_sentencepiece({prose()}, 400)->fingerprint(), trained().fingerprint());
  EXPECT_NE(train_sentencepiece({prose()}, 401)->fingerprint(), trained().fingerprint());
}

TEST(SentencePiece, SaysWhyItCannotBeTrained) {
  EXPECT_TRUE(fails_with("tokenizer: 5000 pieces cannot be trained on 11 bytes of text: at most ",
                         [] { train_sentencepiece({"hello world"}, 5000); }));
  EXPECT_TRUE(fails_with("tokenizer: 10 pieces cannot be trained on 11 bytes of text: its characters and the bytes",
                         [] { train_sentencepiece({"hello world"}, 10); }));
  EXPECT_TRUE(fails_with("there is no text to train on", [] { train_sentencepiece({"", ""}, 300); }));
}

TEST(SentencePiece, RefusesWhatIsNotText) {
  EXPECT_TRUE(fails_with("expected UTF-8 text, got the byte 255 at position 2", [] { trained().encode("ab\xff"); }));
  EXPECT_TRUE(fails_with("expected tokens of 0 to 399, got 400", [] { trained().decode({400}); }));
  EXPECT_TRUE(fails_with("expected tokens of 0 to 399, got -1", [] { trained().decode({-1}); }));
}

TEST_F(TokenizerFiles, AreSavedAndLoaded) {
  byte_tokenizer()->save(folder);
  EXPECT_EQ(load_tokenizer(folder)->fingerprint(), "bytes");
  trained().save(folder);
  const TokenizerPtr loaded = load_tokenizer(folder);
  EXPECT_EQ(loaded->fingerprint(), trained().fingerprint());
  EXPECT_EQ(loaded->encode("return value"), trained().encode("return value"));
  EXPECT_EQ(sentencepiece_tokenizer(folder / "tokenizer.model")->fingerprint(), trained().fingerprint());
}

TEST_F(TokenizerFiles, ForeignModelsKeepTheirSpaceToThemselves) {
  const TokenizerPtr foreign = sentencepiece_tokenizer(foreign_model({}));
  for (const std::string text : {"hello world", " lead", "\nline", "日本\n語", ""})
    EXPECT_EQ(foreign->decode(foreign->encode(text)), text);
  std::string text;
  while (text.size() < 200000) text += prose();
  EXPECT_EQ(foreign->decode(foreign->encode(text)), text);
}

// How others train: keeping the text but for a space before it (LLaMA's), or with SentencePiece's own defaults.
const std::vector<std::unordered_map<std::string, std::string>>& foreign_settings() {
  static const std::vector<std::unordered_map<std::string, std::string>> settings{
      {},
      {{"add_dummy_prefix", "false"}},
      {{"normalization_rule_name", "nmt_nfkc"}, {"remove_extra_whitespaces", "true"}},
      {{"normalization_rule_name", "nmt_nfkc"}, {"remove_extra_whitespaces", "true"}, {"add_dummy_prefix", "false"}},
      {{"remove_extra_whitespaces", "true"}},
      {{"self_test_sample_size", "5"}},  // of which the model says what it makes
  };
  return settings;
}

TEST_F(TokenizerFiles, TextCutBeforeSpaceHasTheTokensOfTheWhole) {
  const std::string text = prose().substr(0, 1500) + "one line  of words\n\n\nand more\r\n  word";
  for (const auto& settings : foreign_settings()) {
    const TokenizerPtr foreign = sentencepiece_tokenizer(foreign_model(settings));
    const std::vector<int64_t> whole = foreign->encode(text);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const std::string_view spaces = " \r\n";
      if (spaces.find(text[cut]) == spaces.npos || spaces.find(text[cut - 1]) != spaces.npos) continue;
      std::vector<int64_t> parts = foreign->encode(text.substr(0, cut));
      for (const int64_t token : foreign->encode_more(text.substr(cut))) parts.push_back(token);
      EXPECT_EQ(parts, whole) << "cut before \"" << text.substr(cut, 10) << "\"";
    }
  }
}

TEST_F(TokenizerFiles, AWordThatIsCutHasNoSpaceInside) {
  for (const auto& settings : foreign_settings()) {
    const TokenizerPtr foreign = sentencepiece_tokenizer(foreign_model(settings));
    std::vector<int64_t> parts = foreign->encode("return val");
    for (const int64_t token : foreign->encode_more("ue * other")) parts.push_back(token);
    EXPECT_EQ(foreign->decode(parts), "return value * other");
  }
}

TEST_F(TokenizerFiles, ALongDocumentIsOneText) {
  std::string text;
  while (text.size() < 4'300'000) text += prose();
  text.replace(2'090'000, 10'000, 10'000, 'x');  // the first cut falls inside a word
  write(folder / "long.txt", text);
  const TokenizerPtr foreign = sentencepiece_tokenizer(foreign_model({}));
  const TokenStream stream =
      prepare_corpus({.validation = {(folder / "long.txt").string()}, .cache = folder / "cache"}, foreign).validation;
  const at::Tensor tokens = stream.read(0, stream.size());
  const int64_t* first = tokens.const_data_ptr<int64_t>();
  EXPECT_EQ(std::count(first, first + tokens.numel(), foreign->separator()), 1);
  EXPECT_TRUE(foreign->decode({first, first + tokens.numel()}) == text)
      << "of which a difference would fill the screen";
}

TEST_F(TokenizerFiles, TheSeparatorIsWhateverPieceTheModelHas) {
  EXPECT_EQ(sentencepiece_tokenizer(foreign_model({}))->separator(), 1);
  EXPECT_EQ(sentencepiece_tokenizer(foreign_model({{"bos_id", "-1"}, {"eos_id", "1"}}))->separator(), 1);
  const auto model = foreign_model({{"bos_id", "-1"}, {"eos_id", "-1"}});
  EXPECT_TRUE(fails_with("it has neither a piece that begins a text nor one that ends it",
                         [&] { sentencepiece_tokenizer(model); }));
}

TEST_F(TokenizerFiles, BrokenOnesAreNamed) {
  const auto model = folder / "tokenizer.model";
  EXPECT_TRUE(fails_with(model.string() + " cannot be read", [&] { sentencepiece_tokenizer(model); }));
  EXPECT_TRUE(fails_with(folder.string() + " cannot be read", [&] { sentencepiece_tokenizer(folder); }));
  EXPECT_TRUE(fails_with("tokenizer.json cannot be read", [&] { load_tokenizer(folder); }));
  trained().save(folder);
  const std::string bytes = read(model), description = read(folder / "tokenizer.json");
  for (const std::string& broken : {bytes.substr(0, bytes.size() / 2), std::string(), std::string("not a model")}) {
    write(model, broken);
    EXPECT_TRUE(fails_with(model.string() + " is not a SentencePiece model", [&] { load_tokenizer(folder); }));
  }
  train_sentencepiece({prose()}, 300)->save(folder);
  write(folder / "tokenizer.json", description);
  EXPECT_TRUE(fails_with("put the model's own file back", [&] { load_tokenizer(folder); }));
  write(folder / "tokenizer.json", R"({"type": "words"})");
  EXPECT_TRUE(
      fails_with(R"(expected the type "bytes" or "sentencepiece", got "words")", [&] { load_tokenizer(folder); }));
  write(folder / "tokenizer.json", "{");
  EXPECT_TRUE(fails_with("tokenizer.json: expected JSON, but line 1", [&] { load_tokenizer(folder); }));
  write(folder / "tokenizer.json", "[]");
  EXPECT_TRUE(fails_with("is not a JSON object with a \"type\"", [&] { load_tokenizer(folder); }));
}

}  // namespace
}  // namespace fem
