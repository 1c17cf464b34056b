// Text to tokens and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fem {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<int64_t> encode(std::string_view text) const = 0;
  // Of text that goes on where another was cut, before white space or inside a word: both together are the tokens of
  // the whole, but for a word that was cut.
  virtual std::vector<int64_t> encode_more(std::string_view text) const { return encode(text); }
  // The separator decodes to nothing, a part of a character to its bytes. SentencePiece models that put a space before
  // every text (LLaMA's) lose it here again: decode a continuation together with the text it continues.
  virtual std::string decode(const std::vector<int64_t>& tokens) const = 0;
  virtual int64_t vocab_size() const = 0;
  // Stands before every document: the model begins with it, and predicting it ends a document.
  virtual int64_t separator() const = 0;
  // The same for two tokenizers only if they are the same: "bytes", or "sentencepiece:<hash of the model>".
  virtual std::string fingerprint() const = 0;
  // The content of a SentencePiece model's file; empty for bytes.
  virtual std::string model() const { return {}; }
  // tokenizer.json, and tokenizer.model for SentencePiece.
  virtual void save(const std::filesystem::path& folder) const = 0;

  // The tokens of a text that begins here: the separator, then the text's own.
  std::vector<int64_t> encode_prompt(std::string_view text) const;
  // The bytes that `token` adds to a text that ends with the token `last`.
  std::string continuation(int64_t last, int64_t token) const;
};

using TokenizerPtr = std::shared_ptr<const Tokenizer>;

TokenizerPtr byte_tokenizer();  // bytes 0-255, separator 256
TokenizerPtr sentencepiece_tokenizer(const std::filesystem::path& model);
// Trains a byte-fallback BPE model of vocab_size pieces on the texts.
TokenizerPtr train_sentencepiece(const std::vector<std::string>& texts, int64_t vocab_size);
TokenizerPtr load_tokenizer(const std::filesystem::path& folder);

}  // namespace fem
