#pragma once

#include <filesystem>
#include <vector>

#include "data/documents.h"
#include "fem/text/tokenizer.h"

namespace fem {

struct StreamSize {
  int64_t tokens = 0, bytes = 0;
};

// Text that becomes the token files of one folder.
struct StreamPlan {
  std::vector<TextPart> parts;
  std::filesystem::path folder;
};

// Tokenizes all plans into shards of 2 to 16 MB of text, on every hardware thread, with one line of progress.
std::vector<StreamSize> write_token_streams(const std::vector<StreamPlan>& plans, const Tokenizer& tokenizer);

}  // namespace fem
