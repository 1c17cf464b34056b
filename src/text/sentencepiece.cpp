#include "text/sentencepiece.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/read_file.h"
#include "text/pieces.h"
#include "text/sentencepiece_model.h"
#include "text/utf8.h"
#include "util/check.h"
#include "util/grouped.h"
#include "util/hash.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581, how pieces spell a space
constexpr size_t kChunkBytes = 4096;                     // BPE of longer texts is slower, a megabyte's by three times
constexpr size_t kSentenceBytes = 4096;

class SentencePieceTokenizer : public Tokenizer {
 public:
  // `name` is what errors call the model.
  SentencePieceTokenizer(std::string model, const std::string& name) : model_(std::move(model)) {
    try {
      check_sentencepiece_model(model_);
      load(*pieces_, model_);
      examine();
    } catch (const c10::Error& error) {
      FEM_CHECK(false, "tokenizer: ", name,
                " is not a SentencePiece model we can use: ", error.what_without_backtrace());
    } catch (const std::exception& error) {
      FEM_CHECK(false, "tokenizer: ", name, " is not a SentencePiece model we can use: ", error.what());
    }
    fingerprint_ = "sentencepiece:" + hex(fnv1a(model_));
  }

  std::vector<int64_t> encode(std::string_view text) const override { return encoded(text, /*follows=*/false); }
  std::vector<int64_t> encode_more(std::string_view text) const override { return encoded(text, /*follows=*/true); }

  // By hand, because the library's own turns every part of a character into U+FFFD; text is streamed by such parts.
  std::string decode(const std::vector<int64_t>& tokens) const override {
    std::string text;
    for (const int64_t token : tokens) {
      FEM_CHECK(token >= 0 && token < vocab_size(), "tokenizer: expected tokens of 0 to ", vocab_size() - 1, ", got ",
                token);
      text += surfaces_[token];
    }
    if (adds_space_ && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

  int64_t vocab_size() const override { return pieces_->size(); }
  int64_t separator() const override { return separator_; }
  std::string fingerprint() const override { return fingerprint_; }
  std::string model() const override { return model_; }

  void save(const fs::path& folder) const override {
    write_atomically(folder / "tokenizer.model", [&](std::ostream& file) { file << model_; });
    const nlohmann::json description{{"type", "sentencepiece"}, {"fingerprint", fingerprint_}};
    write_atomically(folder / "tokenizer.json", [&](std::ostream& file) { file << description << '\n'; });
  }

 private:
  std::vector<int64_t> encoded(std::string_view text, bool follows) const {
    const size_t valid = utf8_prefix(text);
    FEM_CHECK(valid == text.size(), "tokenizer: expected UTF-8 text, got the byte ",
              static_cast<int>(static_cast<unsigned char>(text[valid])), " at position ", valid);
    std::vector<int64_t> tokens;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = chunk_end(text, begin);
      encode_chunk(text.substr(begin, end - begin), follows || begin > 0, tokens);
      begin = end;
    }
    return tokens;
  }

  // Only before line ends: no piece reaches from a line into them, so that the tokens are those of the whole text.
  static size_t chunk_end(std::string_view text, size_t begin) {
    const size_t line = text.find('\n', begin + kChunkBytes);
    if (line == std::string_view::npos) return text.size();
    const size_t first = text.find_last_not_of('\n', line) + 1;
    return first > begin ? first : line;
  }

  static void load(PieceModel& pieces, std::string_view model) {
    const std::string reason = pieces.load(model);
    FEM_CHECK(reason.empty(), reason);
  }

  void examine() {
    separator_ = pieces_->begin_id() >= 0 ? pieces_->begin_id() : pieces_->end_id();
    FEM_CHECK(separator_ >= 0,
              "it has neither a piece that begins a text nor one that ends it, which documents are parted by");
    for (int id = 0; id < pieces_->size(); ++id) surfaces_.push_back(surface_of(id));
    const std::vector<std::string> letter = pieces_->pieces_of("a");
    adds_space_ = !letter.empty() && letter.front().starts_with(kSpaceMark);
    load(*other_, with_dummy_prefix(model_, !adds_space_));
    drops_space_ = is_dropped(" ");
    for (size_t i = 0; i < kSpaceMark.size(); ++i) {
      char piece[7];
      std::snprintf(piece, sizeof(piece), "<0x%02X>", static_cast<unsigned char>(kSpaceMark[i]));
      mark_bytes_[i] = pieces_->id_of(piece);
      spells_mark_ = spells_mark_ && pieces_->is_byte(static_cast<int>(mark_bytes_[i]));
    }
  }

  std::string surface_of(int id) const {
    if (pieces_->is_control(id)) return "";
    if (pieces_->is_unknown(id)) return pieces_->decode(id);
    std::string piece = pieces_->piece(id);
    if (pieces_->is_byte(id)) return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};
    c10::ReplaceAll(piece, kSpaceMark, " ");
    return piece;
  }

  std::vector<int> ids_of(std::string_view text, bool adds_space) const {
    std::vector<int> ids;
    const std::string reason = (adds_space == adds_space_ ? pieces_ : other_)->encode(text, ids);
    FEM_CHECK(reason.empty(), "tokenizer: the text cannot be encoded: ", reason);
    return ids;
  }

  // Is a character white space that the model leaves out where a text begins?
  bool is_dropped(std::string_view character) const {
    return ids_of(std::string(character) + "a", false) == ids_of("a", false);
  }

  void encode_chunk(std::string_view text, bool follows, std::vector<int64_t>& tokens) const {
    // The library takes a mark in the text for a space; its bytes keep it. Models that add spaces would add one here.
    const bool keeps_marks = spells_mark_ && !adds_space_;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t mark = keeps_marks ? text.find(kSpaceMark, begin) : std::string_view::npos;
      encode_plain(text.substr(begin, mark - begin), follows, tokens);
      if (mark == std::string_view::npos) return;
      tokens.insert(tokens.end(), mark_bytes_.begin(), mark_bytes_.end());
      begin = mark + kSpaceMark.size();
    }
  }

  // A text that follows another has a space before its first word only if white space stands there.
  void encode_plain(std::string_view text, bool follows, std::vector<int64_t>& tokens) const {
    if (text.empty()) return;
    const bool space = follows ? drops_space_ && is_dropped(text.substr(0, character_size(text))) : adds_space_;
    const std::vector<int> ids = ids_of(text, space);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  std::string model_, fingerprint_;
  std::unique_ptr<PieceModel> pieces_ = sentencepiece_library().new_model();
  std::unique_ptr<PieceModel> other_ = sentencepiece_library().new_model();  // with the other add_dummy_prefix
  std::vector<std::string> surfaces_;                                        // what each piece looks like in text
  std::array<int64_t, kSpaceMark.size()> mark_bytes_{};
  int64_t separator_ = 0;
  bool adds_space_ = false, drops_space_ = false, spells_mark_ = true;
};

// The texts in pieces short enough for the trainer, which passes over long sentences.
class ShortSentences final : public Sentences {
 public:
  explicit ShortSentences(const std::vector<std::string>& texts) : texts_(texts) {}

  bool next(std::string& sentence) override {
    while (text_ < texts_.size() && begin_ == texts_[text_].size()) ++text_, begin_ = 0;
    if (text_ == texts_.size()) return false;
    const std::string_view rest = std::string_view(texts_[text_]).substr(begin_);
    const size_t size = rest.size() <= kSentenceBytes ? rest.size() : cut_near(rest, kSentenceBytes);
    sentence = rest.substr(0, size);
    begin_ += size;
    return true;
  }

 private:
  const std::vector<std::string>& texts_;
  size_t text_ = 0, begin_ = 0;
};

// The number after `marker` in the trainer's words, 0 if there is none.
int64_t number_after(const std::string& text, const std::string& marker) {
  int64_t number = 0;
  const size_t at = text.find(marker);
  if (at != std::string::npos) std::from_chars(text.data() + at + marker.size(), text.data() + text.size(), number);
  return number;
}

}  // namespace

TokenizerPtr tokenizer_of_model(std::string model, const std::string& name) {
  if (model.empty()) return byte_tokenizer();
  return std::make_shared<SentencePieceTokenizer>(std::move(model), name);
}

TokenizerPtr sentencepiece_tokenizer(const fs::path& path) {
  constexpr uint64_t kLargestModel = 256 << 20;  // bytes
  return std::make_shared<SentencePieceTokenizer>(read_file(path, "tokenizer", kLargestModel), path.string());
}

TokenizerPtr train_sentencepiece(const std::vector<std::string>& texts, int64_t vocab_size) {
  const TrainerSettings settings{
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocab_size)},
      // What is decoded is what was encoded: no normalisation, and bytes for rare characters.
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"split_digits", "true"},
      {"user_defined_symbols", "\n,\t"},
      {"max_sentence_length", std::to_string(2 * kSentenceBytes)},
      {"minloglevel", "2"},
  };
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  FEM_CHECK(bytes > 0, "tokenizer: there is no text to train on");

  ShortSentences sentences(texts);
  std::string model;
  const std::string reason = sentencepiece_library().train(settings, sentences, model);
  if (!reason.empty()) {
    const std::string who = "tokenizer: " + std::to_string(vocab_size) + " pieces cannot be trained on " +
                            grouped(static_cast<int64_t>(bytes)) + " bytes of text: ";
    const int64_t most = number_after(reason, "value <= "), least = number_after(reason, " vs ");
    FEM_CHECK(most == 0, who, "at most ", most, " can be found in it; ask for fewer or give more text");
    FEM_CHECK(least == 0, who, "its characters and the bytes alone are ", least, "; ask for more");
    FEM_CHECK(false, who, reason);
  }
  return std::make_shared<SentencePieceTokenizer>(std::move(model), "the trained model");
}

}  // namespace fem
