// All of generation but the model: what it reads first, and which token comes next in which row.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "fem/generate.h"
#include "models/sampling.h"

namespace fem {

// A prompt is read in pieces of so many tokens: what a piece needs besides the state stays bounded.
inline constexpr int64_t kPromptPiece = 2048;

// Texts as rows [B, T] that end together, equal ones once; shorter ones are padded on the left.
struct PaddedTexts {
  at::Tensor tokens;
  std::optional<at::Tensor> mask;    // bool [B, T], true = a token; absent: all are
  std::optional<at::Tensor> places;  // [texts], the row of each text; absent: row i is text i
};
PaddedTexts padded(const std::vector<std::vector<int64_t>>& texts);

// What needs no prompt and no model to be seen.
void check_generate_options(const GenerateOptions& options);

// The rows that are being written. While any are: choose their next tokens by their logits, stop those that are no
// longer wanted, advance.
class Generation {
 public:
  // Checks the options and the prompts.
  Generation(const GenerateOptions& options, const std::vector<std::vector<int64_t>>& prompts, int64_t vocab_size);

  const std::vector<int64_t>& rows() const { return rows_; }  // those being written, by their prompts' places
  // A token for each of them, by logits [rows, vocab_size].
  const std::vector<int64_t>& choose(const at::Tensor& logits);
  void stop(int64_t row);  // its newest token was the last
  // Drops the rows that have ended. Returns the places of the others among the rows there were.
  std::vector<int64_t> advance();
  const std::vector<int64_t>& newest() const { return newest_; }  // the newest token of each row being written

 private:
  const GenerateOptions options_;
  std::vector<TokenSampler> samplers_;
  std::vector<bool> stopped_;
  std::vector<int64_t> rows_, newest_;
  int64_t steps_ = 0;
};

}  // namespace fem
