#include "fem/generate.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/evaluation_mode.h"
#include "models/generation.h"

namespace fem {
namespace {

using Tokens = std::vector<int64_t>;

// The rows that are still being written: reads their texts and then every token that is added.
class Reader {
 public:
  Reader(LanguageModel& model, const std::vector<Tokens>& prompts, bool cached)
      : model_(model), device_(model->parameters().front().device()), cached_(cached), texts_(prompts) {
    read();
  }

  const at::Tensor& logits() const { return logits_; }  // [rows, tokens]

  // Drops all rows but the kept and adds a token to each of them.
  void go_on(const Tokens& kept, const Tokens& tokens) {
    const bool all = kept.size() == texts_.size();
    std::vector<Tokens> texts;
    for (size_t i = 0; i < kept.size(); ++i) {
      texts.push_back(std::move(texts_[kept[i]]));
      texts.back().push_back(tokens[i]);
    }
    texts_ = std::move(texts);
    if (!cached_) return read();
    if (!all) state_ = state_.select(at::tensor(kept).to(device_));
    logits_ = model_->forward(at::tensor(tokens).unsqueeze(1).to(device_), state_).squeeze(1);
  }

 private:
  void read() {
    const PaddedTexts all = padded(texts_);
    const int64_t length = all.tokens.size(1), piece = cached_ ? kPromptPiece : length;
    at::Tensor hidden;
    for (int64_t begin = 0; begin < length; begin += piece) {
      const int64_t end = std::min(begin + piece, length);
      Batch batch;
      if (all.mask) batch.mask = all.mask->slice(1, begin, end).to(device_);
      hidden = model_->hidden(all.tokens.slice(1, begin, end).to(device_), batch, cached_ ? &state_ : nullptr);
    }
    logits_ = model_->head(hidden.slice(1, -1)).squeeze(1);
    if (!all.places) return;
    const at::Tensor places = all.places->to(device_);
    logits_ = logits_.index_select(0, places);
    if (cached_) state_ = state_.select(places);
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
  Generation generation(options, prompts, model->tokens());
  std::vector<Tokens> made(prompts.size());
  if (generation.rows().empty()) return made;
  const EvaluationMode mode(model);
  Reader reader(model, prompts, options.cached);
  while (true) {
    const Tokens& tokens = generation.choose(reader.logits());
    for (size_t place = 0; place < tokens.size(); ++place) {
      const int64_t row = generation.rows()[place];
      made[row].push_back(tokens[place]);
      if (on_token && !on_token(static_cast<size_t>(row), tokens[place])) generation.stop(row);
    }
    const Tokens kept = generation.advance();
    if (kept.empty()) return made;
    reader.go_on(kept, generation.newest());
  }
}

}  // namespace fem
