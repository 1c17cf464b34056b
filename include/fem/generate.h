#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "fem/language_model.h"

namespace fem {

struct GenerateOptions {
  int64_t max_tokens = 200;
  double temperature = 0.8;         // 0: greedy, 1: as learned
  std::optional<int64_t> top_k;     // only the k likeliest
  std::optional<double> top_p;      // only the likeliest that hold this much probability
  double repetition_penalty = 1.0;  // > 1: tokens seen before become less likely (Keskar et al. 2019)
  std::optional<int64_t> end;       // a row stops after this token
  uint64_t seed = 0;
  bool cached = true;  // off: every step reads the whole text again; the text is the same
};

// Called for every new token of every row; a row goes on while it returns true.
using OnToken = std::function<bool(size_t row, int64_t token)>;

// Continues every prompt (at least one token each, lengths may differ) and returns the new tokens of each. A row's text
// depends on its prompt, its place and the seed alone, not on the rows beside it.
std::vector<std::vector<int64_t>> generate(LanguageModel& model, const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerateOptions& options = {}, const OnToken& on_token = {});

}  // namespace fem
