#include "text/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/error_text.h"
#include "text/sentencepiece.h"

namespace fem {
namespace {

using testing::fails_with;

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string message_field(int number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string piece(const std::string& text, char type) {
  return message_field(1, message_field(1, text) + std::string("\x15\0\0\0\0\x18", 6) + type);
}

constexpr int kNormalizer = 3, kDenormalizer = 5;

// A model of five pieces with a table of normalisations.
std::string model_of(const std::string& table, int place = kNormalizer) {
  return piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) + piece("a", 1) + piece("b", 1) +
         message_field(place, message_field(2, table));
}

// Keys of 'a', 'aa', ... up to `length`, each of which becomes the text at `value`: node k stands in block k of 256
// units.
class Trie {
 public:
  explicit Trie(size_t length, uint32_t value = 0) : units(256 * (length + 2), 1u << 31) {
    units[0] = 256 << 10;
    for (size_t k = 1; k <= length; ++k) {
      units[node(k)] = 'a' | 1 << 8 | static_cast<uint32_t>(node(k) ^ 256 * (k + 1)) << 10;
      units[256 * (k + 1)] = 1u << 31 | value;
    }
  }

  static size_t node(size_t k) { return 256 * k + 'a'; }

  std::string table(const std::string& texts = std::string("b\0", 2)) const {
    const uint32_t size = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
    std::string bytes(sizeof(size) + size, '\0');
    std::memcpy(bytes.data(), &size, sizeof(size));
    std::memcpy(bytes.data() + sizeof(size), units.data(), size);
    return bytes + texts;
  }

  std::vector<uint32_t> units;
};

auto load(const std::string& model) {
  return [=] { tokenizer_of_model(model, "hostile"); };
}

TEST(SentencePieceModel, ASoundTableIsUsed) {
  const TokenizerPtr tokenizer = tokenizer_of_model(model_of(Trie(1).table()));
  EXPECT_EQ(tokenizer->encode("a"), tokenizer->encode("b"));
  EXPECT_NE(tokenizer->encode("a"), tokenizer->encode("c"));
}

TEST(SentencePieceModel, ATrieThatLeavesItsUnitsIsRefused) {
  const std::string outside = "hostile is not a SentencePiece model we can use: its table of normalisations points";
  for (const size_t place : {size_t{0}, Trie::node(1)})
    for (const int spec : {kNormalizer, kDenormalizer}) {
      Trie trie(1);
      trie.units[place] = (trie.units[place] & 0x1ff) | 0x1fffffu << 10;
      EXPECT_TRUE(fails_with(outside + " outside itself", load(model_of(trie.table(), spec))));
      trie.units[place] |= 1 << 9;  // counted in blocks of 256
      EXPECT_TRUE(fails_with(outside + " outside itself", load(model_of(trie.table(), spec))));
    }
  EXPECT_TRUE(fails_with(outside + " outside its texts", load(model_of(Trie(1, 2).table()))));
  EXPECT_TRUE(fails_with(outside + " outside its texts", load(model_of(Trie(1, 0x7fffffff).table()))));
  // In the middle of a character.
  EXPECT_TRUE(
      fails_with(outside + " outside its texts", load(model_of(Trie(1, 1).table(std::string("\xc3\xa9\0", 3))))));
}

TEST(SentencePieceModel, MoreMatchesThanTheLibraryHasPlacesForAreRefused) {
  tokenizer_of_model(model_of(Trie(32).table()))->encode(std::string(40, 'a'));
  EXPECT_TRUE(fails_with("matches too often", load(model_of(Trie(33).table()))));
  Trie circle(1);
  circle.units[Trie::node(1)] = 'a' | 1 << 8 | static_cast<uint32_t>(Trie::node(1) ^ 256) << 10;
  circle.units[256] = 1u << 31;
  EXPECT_TRUE(fails_with("leads in circles", load(model_of(circle.table()))));
}

TEST(SentencePieceModel, SizesAndTextsAreChecked) {
  EXPECT_TRUE(fails_with("texts that are not UTF-8 or do not end", load(model_of(Trie(1).table("b")))));
  EXPECT_TRUE(
      fails_with("texts that are not UTF-8 or do not end", load(model_of(Trie(1).table(std::string("\xff\0", 2))))));
  std::string table = Trie(1).table();
  EXPECT_TRUE(fails_with("a trie of 3072 bytes in 3072", load(model_of(table.substr(0, table.size() - 2)))));
  table[0] = 1;
  EXPECT_TRUE(fails_with("a trie of 3073 bytes", load(model_of(table))));
  EXPECT_TRUE(fails_with("has 3 bytes", load(model_of("abc"))));
  EXPECT_TRUE(fails_with("expected 1 to 16777216 pieces, got 0", load(message_field(3, ""))));
}

TEST(SentencePieceModel, EveryTableOfItIsLookedAt) {
  Trie hostile(1);
  hostile.units[0] = 0x1fffffu << 10;
  // The library merges what comes twice.
  const std::string twice = model_of(hostile.table()) + message_field(kNormalizer, message_field(1, "name"));
  EXPECT_TRUE(fails_with("points outside itself", load(twice)));
  // A tag that is longer than it need be.
  const std::string spec = message_field(2, hostile.table());
  EXPECT_TRUE(fails_with("points outside itself",
                         load(model_of(Trie(1).table()) + std::string("\x9a\x80\0", 3) + varint(spec.size()) + spec)));
  // And one whose upper bits the library drops.
  EXPECT_TRUE(fails_with("not a protocol buffer",
                         load(model_of(Trie(1).table()) + "\x9a\x80\x80\x80\x70" + varint(spec.size()) + spec)));
}

}  // namespace
}  // namespace fem
