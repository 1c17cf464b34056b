#include "models/generation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "util/check.h"

namespace fem {
namespace {

using Tokens = std::vector<int64_t>;

void check(const GenerateOptions& options, const std::vector<Tokens>& prompts, int64_t vocab_size) {
  check_generate_options(options);
  const auto is_token = [&](int64_t token) { return token >= 0 && token < vocab_size; };
  FEM_CHECK(!options.end || is_token(*options.end), "generate: expected end to be a token from 0 to ", vocab_size - 1,
            ", got ", *options.end);
  for (size_t row = 0; row < prompts.size(); ++row) {
    FEM_CHECK(!prompts[row].empty(), "generate: expected at least one token in every prompt, but prompt ", row,
              " is empty; begin it with the tokenizer's separator");
    const auto stranger = std::find_if_not(prompts[row].begin(), prompts[row].end(), is_token);
    FEM_CHECK(stranger == prompts[row].end(), "generate: expected tokens from 0 to ", vocab_size - 1, ", got ",
              *stranger, " in prompt ", row, "; was it made by another tokenizer?");
  }
}

std::vector<double> row_of(const at::Tensor& logits, size_t row) {
  const double* begin = logits.const_data_ptr<double>() + static_cast<int64_t>(row) * logits.size(1);
  return {begin, begin + logits.size(1)};
}

}  // namespace

PaddedTexts padded(const std::vector<Tokens>& texts) {
  FEM_CHECK(!texts.empty(), "generate: expected at least one text to read, got none");
  std::map<Tokens, int64_t> row_of_text;
  std::vector<const Tokens*> distinct;
  Tokens places;
  for (const Tokens& text : texts) {
    const auto [known, is_new] = row_of_text.emplace(text, static_cast<int64_t>(distinct.size()));
    if (is_new) distinct.push_back(&text);
    places.push_back(known->second);
  }
  const auto by_length = [](const Tokens* a, const Tokens* b) { return a->size() < b->size(); };
  const auto [shortest, longest] = std::minmax_element(distinct.begin(), distinct.end(), by_length);
  const auto rows = static_cast<int64_t>(distinct.size()), length = static_cast<int64_t>((*longest)->size());
  PaddedTexts out{at::zeros({rows, length}, at::kLong)};
  if ((*shortest)->size() != (*longest)->size()) out.mask = at::zeros({rows, length}, at::kBool);
  if (distinct.size() != texts.size()) out.places = at::tensor(places, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const Tokens& text = *distinct[row];
    const auto padding = length - static_cast<int64_t>(text.size());
    std::copy(text.begin(), text.end(), out.tokens.mutable_data_ptr<int64_t>() + row * length + padding);
    if (out.mask) (*out.mask)[row].slice(0, padding).fill_(true);
  }
  return out;
}

void check_generate_options(const GenerateOptions& options) {
  FEM_CHECK(options.max_tokens >= 0, "generate: expected max_tokens of 0 or more, got ", options.max_tokens);
  FEM_CHECK(options.temperature >= 0 && std::isfinite(options.temperature),
            "generate: expected a temperature of 0 (greedy) or more, got ", options.temperature);
  FEM_CHECK(!options.top_k || *options.top_k >= 1, "generate: expected top_k of 1 or more, got ", *options.top_k,
            "; leave it out to keep every token");
  FEM_CHECK(!options.top_p || (*options.top_p > 0 && *options.top_p <= 1),
            "generate: expected top_p above 0 and at most 1, got ", *options.top_p);
  FEM_CHECK(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty),
            "generate: expected a repetition_penalty above 0 (1 changes nothing), got ", options.repetition_penalty);
}

Generation::Generation(const GenerateOptions& options, const std::vector<Tokens>& prompts, int64_t vocab_size)
    : options_(options), stopped_(prompts.size()) {
  check(options, prompts, vocab_size);
  for (size_t row = 0; row < prompts.size(); ++row) samplers_.emplace_back(options, row, prompts[row], vocab_size);
  if (options.max_tokens == 0) return;
  rows_.resize(prompts.size());
  std::iota(rows_.begin(), rows_.end(), 0);
}

const Tokens& Generation::choose(const at::Tensor& logits) {
  const auto rows = static_cast<int64_t>(rows_.size());
  FEM_CHECK(logits.dim() == 2 && logits.size(0) == rows, "generate: expected logits [", rows, ", vocab_size], got ",
            shape_of(logits));
  const at::Tensor numbers = logits.to(at::kCPU, at::kDouble).contiguous();
  newest_.clear();
  for (size_t place = 0; place < rows_.size(); ++place)
    newest_.push_back(samplers_[rows_[place]].choose(row_of(numbers, place)));
  ++steps_;
  return newest_;
}

void Generation::stop(int64_t row) {
  FEM_CHECK(row >= 0 && row < static_cast<int64_t>(stopped_.size()), "generate: expected a row from 0 to ",
            static_cast<int64_t>(stopped_.size()) - 1, ", got ", row);
  stopped_[row] = true;
}

Tokens Generation::advance() {
  FEM_CHECK(newest_.size() == rows_.size(), "generate: expected choose before advance");
  Tokens kept, rows, newest;
  for (size_t place = 0; place < rows_.size() && steps_ < options_.max_tokens; ++place) {
    if (stopped_[rows_[place]] || newest_[place] == options_.end) continue;
    kept.push_back(static_cast<int64_t>(place));
    rows.push_back(rows_[place]);
    newest.push_back(newest_[place]);
  }
  rows_ = std::move(rows);
  newest_ = std::move(newest);
  return kept;
}

}  // namespace fem
