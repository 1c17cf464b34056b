#include "fem/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/evaluation_mode.h"
#include "models/sampling.h"
#include "util/check.h"

namespace fem {
namespace {

using Tokens = std::vector<int64_t>;

// A prompt is read in pieces of so many tokens: what a piece needs besides the state stays bounded.
constexpr int64_t kPiece = 2048;

void check(const GenerateOptions& options, const std::vector<Tokens>& prompts, int64_t vocab_size) {
  FEM_CHECK(options.max_tokens >= 0, "generate: expected max_tokens of 0 or more, got ", options.max_tokens);
  FEM_CHECK(options.temperature >= 0 && std::isfinite(options.temperature),
            "generate: expected a temperature of 0 (greedy) or more, got ", options.temperature);
  FEM_CHECK(!options.top_k || *options.top_k >= 1, "generate: expected top_k of 1 or more, got ", *options.top_k,
            "; leave it out to keep every token");
  FEM_CHECK(!options.top_p || (*options.top_p > 0 && *options.top_p <= 1),
            "generate: expected top_p above 0 and at most 1, got ", *options.top_p);
  FEM_CHECK(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty),
            "generate: expected a repetition_penalty above 0 (1 changes nothing), got ", options.repetition_penalty);
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

// Texts as rows [B, T] that end together; shorter ones are padded on the left.
struct PaddedTexts {
  at::Tensor tokens;
  std::optional<at::Tensor> mask;
};

PaddedTexts padded(const std::vector<Tokens>& texts, at::Device device) {
  const auto by_length = [](const Tokens& a, const Tokens& b) { return a.size() < b.size(); };
  const auto [shortest, longest] = std::minmax_element(texts.begin(), texts.end(), by_length);
  const auto rows = static_cast<int64_t>(texts.size()), length = static_cast<int64_t>(longest->size());
  const at::Tensor tokens = at::zeros({rows, length}, at::kLong), mask = at::zeros({rows, length}, at::kBool);
  for (int64_t row = 0; row < rows; ++row) {
    const Tokens& text = texts[row];
    const auto padding = length - static_cast<int64_t>(text.size());
    std::copy(text.begin(), text.end(), tokens.mutable_data_ptr<int64_t>() + row * length + padding);
    mask[row].slice(0, padding).fill_(true);
  }
  if (shortest->size() == longest->size()) return {tokens.to(device), std::nullopt};
  return {tokens.to(device), mask.to(device)};
}

std::vector<double> row_of(const at::Tensor& logits, size_t row) {
  const double* begin = logits.const_data_ptr<double>() + static_cast<int64_t>(row) * logits.size(1);
  return {begin, begin + logits.size(1)};
}

// The rows that are still being written: reads their texts and then every token that is added.
class Reader {
 public:
  Reader(LanguageModel& model, const std::vector<Tokens>& prompts, bool cached)
      : model_(model), device_(model->parameters().front().device()), cached_(cached), texts_(prompts) {
    // Equal prompts are read once.
    std::vector<Tokens> distinct;
    Tokens places;
    for (const Tokens& prompt : prompts) {
      const auto known = std::find(distinct.begin(), distinct.end(), prompt);
      places.push_back(known - distinct.begin());
      if (known == distinct.end()) distinct.push_back(prompt);
    }
    logits_ = read(distinct);
    if (distinct.size() == prompts.size()) return;
    const at::Tensor index = at::tensor(places).to(device_);
    logits_ = logits_.index_select(0, index);
    if (cached_) state_ = state_.select(index);
  }

  at::Tensor logits() const { return logits_.to(at::kCPU, at::kDouble).contiguous(); }  // [rows, vocab_size]

  // Drops all rows but the kept and adds a token to each of them.
  void go_on(const Tokens& kept, const Tokens& tokens) {
    const bool all = kept.size() == texts_.size();
    std::vector<Tokens> texts;
    for (size_t i = 0; i < kept.size(); ++i) {
      texts.push_back(std::move(texts_[kept[i]]));
      texts.back().push_back(tokens[i]);
    }
    texts_ = std::move(texts);
    if (!cached_) {
      logits_ = read(texts_);
      return;
    }
    if (!all) state_ = state_.select(at::tensor(kept).to(device_));
    logits_ = model_->forward(at::tensor(tokens).unsqueeze(1).to(device_), state_).squeeze(1);
  }

 private:
  at::Tensor read(const std::vector<Tokens>& texts) {
    const PaddedTexts all = padded(texts, device_);
    const int64_t length = all.tokens.size(1), piece = cached_ ? kPiece : length;
    at::Tensor hidden;
    for (int64_t begin = 0; begin < length; begin += piece) {
      const int64_t end = std::min(begin + piece, length);
      Batch batch;
      if (all.mask) batch.mask = all.mask->slice(1, begin, end);
      hidden = model_->hidden(all.tokens.slice(1, begin, end), batch, cached_ ? &state_ : nullptr);
    }
    return model_->head(hidden.slice(1, -1)).squeeze(1);
  }

  LanguageModel& model_;
  const at::Device device_;
  const bool cached_;
  std::vector<Tokens> texts_;
  LanguageModelState state_;
  at::Tensor logits_;
};

}  // namespace

std::vector<Tokens> generate(LanguageModel& model, const std::vector<Tokens>& prompts, const GenerateOptions& options,
                             const OnToken& on_token) {
  const int64_t vocab_size = model->options.vocab_size;
  check(options, prompts, vocab_size);
  std::vector<Tokens> made(prompts.size());
  if (prompts.empty() || options.max_tokens == 0) return made;

  std::vector<TokenSampler> samplers;
  for (size_t row = 0; row < prompts.size(); ++row) samplers.emplace_back(options, row, prompts[row], vocab_size);
  std::vector<size_t> rows(prompts.size());  // those still being written
  std::iota(rows.begin(), rows.end(), 0);

  const EvaluationMode mode(model);
  Reader reader(model, prompts, options.cached);
  for (int64_t step = 1;; ++step) {
    const at::Tensor logits = reader.logits();
    Tokens kept, tokens;
    std::vector<size_t> going_on;
    for (size_t place = 0; place < rows.size(); ++place) {
      const size_t row = rows[place];
      const int64_t token = samplers[row].choose(row_of(logits, place));
      made[row].push_back(token);
      const bool wanted = !on_token || on_token(row, token);
      if (!wanted || token == options.end) continue;
      kept.push_back(static_cast<int64_t>(place));
      tokens.push_back(token);
      going_on.push_back(row);
    }
    if (kept.empty() || step == options.max_tokens) return made;
    reader.go_on(kept, tokens);
    rows = std::move(going_on);
  }
}

}  // namespace fem
