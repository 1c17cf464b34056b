// All of a likelihood but the model: which tokens are scored, what is read together, and what the logits say.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fem/text/likelihood.h"

namespace fem {

// Tokens of which those from `begin` on are scored; begin >= 1.
struct ScoredTokens {
  std::vector<int64_t> tokens;
  int64_t begin;
};

// With the white space at the context's end in the continuation: tokenizers put a space in front of a word.
Continuation parted_before_space(Continuation text);

// A separator, the context's tokens, and those that the whole text has behind as many, which are scored. Where there
// are none, because a token reaches over all of the continuation, that token is scored.
ScoredTokens scored_pair(int64_t separator, std::vector<int64_t> context, const std::vector<int64_t>& whole);

// Sequences packed in rows, longest first: what needs the most memory is seen at once. For each row: read its tokens,
// and add the logits at its places, some at a time.
class ScoredRows {
 public:
  ScoredRows(std::vector<ScoredTokens> sequences, int64_t batch_tokens, int64_t vocab_size);

  bool next();                                                  // begins the next row; false after the last
  const at::Tensor& tokens() const { return tokens_; }          // [1, T]
  const at::Tensor& cu_seqlens() const { return cu_seqlens_; }  // [n + 1], the borders of its sequences
  const at::Tensor& places() const { return places_; }          // [N], after which of them a token is scored
  int64_t at_once() const { return at_once_; }                  // logits of so many places at a time
  void add(const at::Tensor& logits);                           // of the next places, [n, vocab_size]

  int64_t scored() const { return static_cast<int64_t>(done_); }  // sequences
  const std::vector<Likelihood>& results() const { return results_; }

 private:
  std::vector<ScoredTokens> sequences_;
  const int64_t batch_tokens_, at_once_;
  std::vector<size_t> order_;
  size_t done_ = 0;          // of order_, the row included once its logits are all there
  std::vector<size_t> row_;  // the sequence of every place
  at::Tensor tokens_, cu_seqlens_, places_, targets_;
  int64_t added_ = 0;  // places
  std::vector<Likelihood> results_;
};

}  // namespace fem
