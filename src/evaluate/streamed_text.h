#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace fem {

// Text that is made token by token, as soon as it is certain: whole UTF-8 characters, and nothing that may still
// become a stop string. Bytes that are no character become U+FFFD.
class StreamedText {
 public:
  // last: the token before the first that is added.
  StreamedText(TokenizerPtr tokenizer, int64_t last, std::vector<std::string> stops);

  std::string add(int64_t token);  // what became certain
  std::string finish();            // what was held back
  bool stopped() const { return stopped_; }

 private:
  std::string release();

  TokenizerPtr tokenizer_;
  int64_t last_;
  std::vector<std::string> stops_;
  std::string bytes_;  // not yet a character
  std::string text_;   // not yet certain
  bool stopped_ = false;
};

}  // namespace fem
