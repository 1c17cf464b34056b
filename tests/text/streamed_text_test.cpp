#include "fem/text/streamed_text.h"

#include <gtest/gtest.h>

#include "support/error_text.h"
#include "text/bigrams.h"

namespace fem {
namespace {

using testing::fails_with;

using testing::kSeparator;

StreamedText streamed(std::vector<std::string> stops = {}) { return {byte_tokenizer(), kSeparator, std::move(stops)}; }

// What comes out after each byte, parted by bars.
std::string outcome(StreamedText text, const std::string& bytes) {
  std::string all;
  for (const char byte : bytes) {
    all += text.add(static_cast<unsigned char>(byte)) + "|";
    if (text.stopped()) break;
  }
  return all + text.finish();
}

// Words with a space before them, which the first word of a text loses.
class WordTokenizer : public Tokenizer {
 public:
  std::vector<int64_t> encode(std::string_view) const override { return {}; }
  std::string decode(const std::vector<int64_t>& tokens) const override {
    std::string text;
    for (const int64_t token : tokens)
      if (token != separator()) text += token == 1 ? " one" : " two";
    return text.empty() ? text : text.substr(1);
  }
  int64_t vocab_size() const override { return 3; }
  int64_t separator() const override { return 0; }
  std::string fingerprint() const override { return "words"; }
  void save(const std::filesystem::path&) const override {}
};

TEST(StreamedText, ShowsWholeCharacters) {
  EXPECT_EQ(outcome(streamed(), "hé"), "h||é|");
  EXPECT_EQ(outcome(streamed(), "€😀"), "||€||||😀|");
}

TEST(StreamedText, BrokenBytesBecomeReplacements) {
  EXPECT_EQ(outcome(streamed(), "a\xffz"), "a|\uFFFD|z|");
  EXPECT_EQ(outcome(streamed(), "\xe2\x82z"), "||\uFFFDz|");
  EXPECT_EQ(outcome(streamed(), "\x80"), "\uFFFD|");
  EXPECT_EQ(outcome(streamed(), "\xe0\x80"), "|\uFFFD\uFFFD|") << "no more bytes make this a character";
  EXPECT_EQ(outcome(streamed(), "\xf0\x9f\x98z"), "|||\uFFFDz|") << "what began a character is one replacement";
  EXPECT_EQ(outcome(streamed(), "\xf4\x90\x80z"), "|\uFFFD\uFFFD|\uFFFD|z|");
  EXPECT_EQ(outcome(streamed(), "ab\xf0\x9f"), "a|b|||\uFFFD") << "a text that ends inside a character";
  for (const std::string lead : {"\xc2", "\xe0", "\xed", "\xef", "\xf0", "\xf4"})
    EXPECT_EQ(outcome(streamed(), lead), "|\uFFFD") << "this may have become a character";
  for (const std::string lead : {"\xc0", "\xc1", "\xf5", "\xfe"}) EXPECT_EQ(outcome(streamed(), lead), "\uFFFD|");
}

TEST(StreamedText, EndsBeforeAStopString) {
  EXPECT_EQ(outcome(streamed({"END"}), "aENDb"), "a||||");
  EXPECT_EQ(outcome(streamed({"END"}), "aENb"), "a|||ENb|");
  EXPECT_EQ(outcome(streamed({"END"}), "aEN"), "a|||EN") << "what only might have become one is text";
  EXPECT_EQ(outcome(streamed({"aab"}), "aaab"), "||a||");
  EXPECT_EQ(outcome(streamed({"xyz", "y"}), "axyz"), "a||x|") << "the first that is whole ends the text";
  EXPECT_EQ(outcome(streamed({"é"}), "a\xc3\xa9"), "a|||");
}

TEST(StreamedText, AStopStringMayBeginInsideAToken) {
  StreamedText text(std::make_shared<WordTokenizer>(), 0, {"e t"});
  EXPECT_EQ(text.add(1), "on");
  EXPECT_EQ(text.add(2), "");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.finish(), "");
}

TEST(StreamedText, KeepsTheSpaceBetweenTokens) {
  const auto words = std::make_shared<WordTokenizer>();
  StreamedText first(words, 0, {}), later(words, 2, {});
  EXPECT_EQ(first.add(1), "one");
  EXPECT_EQ(first.add(2), " two");
  EXPECT_EQ(later.add(1), " one");
}

TEST(StreamedText, AReplacementMayBeAStopString) { EXPECT_EQ(outcome(streamed({"b\uFFFD"}), "ab\xf0\x9f"), "a||||"); }

TEST(StreamedText, AnEmptyStopStringIsRefused) {
  EXPECT_TRUE(fails_with("expected stop strings that are not empty, got an empty one", [] { streamed({"a", ""}); }));
}

}  // namespace
}  // namespace fem
