#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fem/text/tokenizer.h"

namespace fem {

class TokenShard;

// Tokens of many documents one after another, each document behind a separator, in files that are read where they are
// needed. Their names may go while the stream lives.
class TokenStream {
 public:
  // Every shard-*.safetensors of a folder, in order of their names; the fingerprint must be the tokenizer's.
  static TokenStream open(const std::filesystem::path& folder, const std::string& fingerprint);

  int64_t size() const { return size_; }
  int64_t bytes() const { return bytes_; }  // of the text behind the tokens
  int64_t separator() const { return separator_; }
  at::Tensor read(int64_t begin, int64_t count) const;  // [count] int64

 private:
  std::string remedy() const;
  void append(const std::filesystem::path& file, const std::string& fingerprint, const std::string& place);

  std::filesystem::path folder_;
  std::vector<std::shared_ptr<const TokenShard>> shards_;
  std::vector<int64_t> begins_;  // in the stream, one for each shard
  int64_t size_ = 0, bytes_ = 0, separator_ = 0, vocab_size_ = 0;
};

// Writes one file of a stream: shard `index` of `count`, made of `bytes` bytes of text. Every token is checked.
void write_token_shard(const std::filesystem::path& folder, int64_t index, int64_t count,
                       const std::vector<int64_t>& tokens, int64_t bytes, const Tokenizer& tokenizer);

}  // namespace fem
