#include "text/sentencepiece_model.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "fem/language_model.h"
#include "text/utf8.h"
#include "util/check.h"

namespace fem {
namespace {

// A field of a protocol buffer message; bytes only of those that have a length.
struct Field {
  uint32_t number;
  std::optional<std::string_view> bytes;
};

// Goes through the fields of a message and stays inside it.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const uint64_t tag = varint();
    FEM_CHECK(tag <= UINT32_MAX && tag >> 3 > 0, "it is not a protocol buffer");
    Field field{static_cast<uint32_t>(tag >> 3), std::nullopt};
    switch (tag & 7) {
      case 0:
        varint();
        return field;
      case 1:
        take(8);
        return field;
      case 2:
        field.bytes = take(varint());
        return field;
      case 5:
        take(4);
        return field;
    }
    FEM_CHECK(false, "it is not a protocol buffer");
  }

  size_t left() const { return rest_.size(); }  // bytes

 private:
  std::string_view take(uint64_t size) {
    FEM_CHECK(size <= rest_.size(), "it is cut short");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    FEM_CHECK(false, "it is not a protocol buffer");
  }

  std::string_view rest_;
};

// The table of normalisations: the size of a trie, the trie, a double array of Darts-clone, and texts that its values
// are places in.
class NormalizationTable {
 public:
  explicit NormalizationTable(std::string_view table) {
    constexpr size_t kLargest = 16 << 20;
    uint32_t size = 0;
    FEM_CHECK(table.size() > sizeof(size) && table.size() <= kLargest, "its table of normalisations has ", table.size(),
              " bytes");
    std::memcpy(&size, table.data(), sizeof(size));
    table.remove_prefix(sizeof(size));
    FEM_CHECK(size > 0 && size < table.size() && size % sizeof(uint32_t) == 0,
              "its table of normalisations has a trie of ", size, " bytes in ", table.size());
    units_.resize(size / sizeof(uint32_t));
    std::memcpy(units_.data(), table.data(), size);
    texts_ = table.substr(size);
    FEM_CHECK(texts_.back() == '\0' && utf8_prefix(texts_) == texts_.size(),
              "its table of normalisations has texts that are not UTF-8 or do not end");
    matches_.resize(units_.size(), kUnknown);
  }

  void check() { matches_below(0, 0); }

 private:
  static constexpr int kMostMatches = 32;   // places that the library has for the matches of one text
  static constexpr int kLongestKey = 1024;  // bytes; those of Unicode have some dozens
  static constexpr int8_t kUnknown = -1, kOpen = -2;

  // The most values on a path that begins at a node, its own included. As Darts-clone reads it: a unit has 8 bits of
  // label, a flag for a value, and the rest says where its children are, exclusive-or its own place.
  int matches_below(size_t node, int depth) {
    FEM_CHECK(matches_[node] != kOpen && depth <= kLongestKey, "its table of normalisations leads in circles");
    if (matches_[node] != kUnknown) return matches_[node];
    matches_[node] = kOpen;
    const uint32_t unit = units_[node];
    const size_t children = node ^ (unit >> 10) << ((unit & 1u << 9) >> 6);
    FEM_CHECK((children | 0xff) < units_.size(), "its table of normalisations points outside itself");
    const bool has_value = node > 0 && (unit >> 8 & 1);
    if (has_value) check_text(units_[children] & ~(1u << 31));
    int most = 0;
    for (uint32_t label = 0; label < 256; ++label)
      if ((units_[children ^ label] & (1u << 31 | 0xff)) == label)
        most = std::max(most, matches_below(children ^ label, depth + 1));
    most += has_value;
    FEM_CHECK(most <= kMostMatches, "its table of normalisations matches too often");
    matches_[node] = static_cast<int8_t>(most);
    return most;
  }

  void check_text(size_t begin) const {
    FEM_CHECK(begin < texts_.size() && (static_cast<unsigned char>(texts_[begin]) & 0xc0) != 0x80,
              "its table of normalisations points outside its texts");
  }

  std::vector<uint32_t> units_;
  std::string_view texts_;
  std::vector<int8_t> matches_;
};

void check_normalizer(std::string_view spec) {
  constexpr uint32_t kTable = 2;
  Message message(spec);
  while (const auto field = message.next())
    if (field->number == kTable && field->bytes && !field->bytes->empty()) NormalizationTable(*field->bytes).check();
}

}  // namespace

void check_sentencepiece_model(std::string_view model) {
  constexpr uint32_t kPiece = 1, kNormalizer = 3, kDenormalizer = 5;
  int64_t pieces = 0;
  Message message(model);
  while (const auto field = message.next()) {
    pieces += field->number == kPiece;
    if ((field->number == kNormalizer || field->number == kDenormalizer) && field->bytes)
      check_normalizer(*field->bytes);
  }
  FEM_CHECK(pieces >= 1 && pieces <= kLargestVocabulary, "expected 1 to ", kLargestVocabulary, " pieces, got ", pieces);
}

std::string with_dummy_prefix(std::string_view model, bool adds_space) {
  constexpr uint32_t kSelfTest = 4;
  std::string changed;
  Message message(model);
  for (size_t begin = 0, end = 0; const auto field = message.next(); begin = end) {
    end = model.size() - message.left();
    if (field->number != kSelfTest) changed += model.substr(begin, end - begin);
  }
  // A second normalizer_spec with add_dummy_prefix alone: of a field that is there twice the later one holds.
  return changed + "\x1a\x02\x18" + (adds_space ? '\1' : '\0');
}

}  // namespace fem
