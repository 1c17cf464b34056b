#pragma once

#include <functional>

#include "data/token_stream.h"
#include "fem/language_model.h"

namespace fem {

struct Perplexity {
  int64_t tokens = 0, bytes = 0;
  double nats = 0;

  double loss() const;           // nats a token
  double perplexity() const;     // exp(loss)
  double bits_per_byte() const;  // separators count as tokens, not as bytes
};

// Reads a stream once in rows of length tokens, each row on its own, and predicts all tokens but the first; at most
// max_tokens of them (0: all; the bytes are then that share of the stream's). on_read is told how many there are so
// far.
Perplexity measure_perplexity(LanguageModel& model, const TokenStream& stream, int64_t length, int64_t batch_rows,
                              int64_t max_tokens = 0, const std::function<void(int64_t tokens)>& on_read = {});

}  // namespace fem
