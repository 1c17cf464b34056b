#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fem/text/tokenizer.h"

namespace fem {

// Text out of bytes as they come, as soon as it is certain: whole UTF-8 characters, and nothing that may still become a
// stop string. Bytes that are no character become U+FFFD, as many as Unicode recommends.
class CertainText {
 public:
  explicit CertainText(std::vector<std::string> stops);

  std::string add(std::string_view bytes);  // what became certain
  std::string finish();                     // what was held back
  bool stopped() const { return stopped_; }

 private:
  std::string release();

  std::vector<std::string> stops_;
  std::string bytes_;  // not yet a character
  std::string text_;   // not yet certain
  bool stopped_ = false;
};

// The same out of tokens.
class StreamedText {
 public:
  // last: the token before the first that is added.
  StreamedText(TokenizerPtr tokenizer, int64_t last, std::vector<std::string> stops);

  std::string add(int64_t token);
  std::string finish() { return text_.finish(); }
  bool stopped() const { return text_.stopped(); }

 private:
  TokenizerPtr tokenizer_;
  int64_t last_;
  CertainText text_;
};

}  // namespace fem
