// From logits to a token.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "fem/generate.h"

namespace fem {

// Chooses the tokens of one row: penalty, temperature, top-k and top-p in this order, then one draw a token from a
// generator of its own.
class TokenSampler {
 public:
  TokenSampler(const GenerateOptions& options, size_t row, const std::vector<int64_t>& prompt, int64_t vocab_size);

  int64_t choose(std::vector<double> logits);

 private:
  const GenerateOptions options_;
  std::mt19937_64 generator_;
  std::vector<bool> seen_;  // by token
};

}  // namespace fem
