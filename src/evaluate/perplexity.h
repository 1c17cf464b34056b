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

// Reads a stream once in rows of length tokens, each row on its own, and predicts all tokens but the first.
struct PerplexityOptions {
  int64_t length = 512;
  int64_t batch_rows = 8;
  int64_t max_tokens = 0;       // predict at most so many; 0: all
  int64_t part = 0, parts = 1;  // only every parts-th batch, for several processes
  // Told after every batch how far the reading is, and where it ends. What it throws ends the reading.
  std::function<void(int64_t tokens, int64_t all)> on_read = {};
};

// With less than the whole stream the bytes are that share of the stream's.
Perplexity measure_perplexity(LanguageModel& model, const TokenStream& stream, const PerplexityOptions& options);

}  // namespace fem
