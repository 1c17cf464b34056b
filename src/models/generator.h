// Tokens out of a model, one after the other.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "models/generation.h"
#include "models/language_model.h"

namespace fem {

class Generator {
 public:
  Generator(std::shared_ptr<const BoundLanguageModel> model, const std::vector<std::vector<int64_t>>& prompts,
            const GenerateOptions& options);

  // The next token of every row that is being written, as (row, token); none after the last.
  std::vector<std::pair<int64_t, int64_t>> next();
  void stop(int64_t row) { generation_.stop(row); }  // its newest token was the last

 private:
  void read();
  void read_on(const std::vector<int64_t>& kept);

  const std::shared_ptr<const BoundLanguageModel> model_;
  const bool cached_;
  Generation generation_;
  std::vector<std::vector<int64_t>> texts_;  // of the rows that are being written
  LanguageModelState state_;                 // after them
  at::Tensor logits_;                        // the same, [rows, tokens]
};

}  // namespace fem
