// Models of bytes that look at one byte alone, and what their texts cost.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "fem/text/tokenizer.h"
#include "models/small_models.h"

namespace fem::testing {

inline constexpr int64_t kSeparator = 256, kVocabulary = 257;

inline at::Tensor random_bigrams() {
  at::manual_seed(3);
  return at::randn({kVocabulary, kVocabulary}) * 2;
}

// Every byte is followed by the next one of the text, which no byte may occur in twice.
inline LanguageModel reciting_model(const std::string& text) {
  at::Tensor logits = at::zeros({kVocabulary, kVocabulary});
  for (size_t i = 0; i + 1 < text.size(); ++i) logits[text[i]][text[i + 1]] = 5.0;
  return bigram_model(logits);
}

// The log-probability of what is after the first token.
inline double log_probability(const at::Tensor& bigrams, const std::vector<int64_t>& tokens) {
  const at::Tensor table = bigrams.to(at::kDouble).log_softmax(-1);
  double sum = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) sum += table[tokens[i]][tokens[i + 1]].item<double>();
  return sum;
}

inline std::vector<int64_t> bytes_of(const std::string& text) { return byte_tokenizer()->encode(text); }

}  // namespace fem::testing
