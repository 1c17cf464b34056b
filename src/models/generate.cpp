#include "fem/generate.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/generator.h"

namespace fem {

using Tokens = std::vector<int64_t>;

Generator::Generator(std::shared_ptr<const BoundLanguageModel> model, const std::vector<Tokens>& prompts,
                     const GenerateOptions& options)
    : model_(std::move(model)),
      cached_(options.cached),
      generation_(options, prompts, model_->tokens()),
      texts_(prompts) {}

std::vector<std::pair<int64_t, int64_t>> Generator::next() {
  const at::NoGradGuard no_gradients;
  if (generation_.rows().empty()) return {};
  if (!logits_.defined()) {
    read();
  } else {
    const Tokens kept = generation_.advance();
    if (kept.empty()) return {};
    read_on(kept);
  }
  const Tokens& tokens = generation_.choose(logits_);
  std::vector<std::pair<int64_t, int64_t>> made;
  for (size_t place = 0; place < tokens.size(); ++place) made.emplace_back(generation_.rows()[place], tokens[place]);
  return made;
}

// All that the texts hold.
void Generator::read() {
  const PaddedTexts all = padded(texts_);
  const int64_t length = all.tokens.size(1), piece = cached_ ? kPromptPiece : length;
  at::Tensor hidden;
  for (int64_t begin = 0; begin < length; begin += piece) {
    const int64_t end = std::min(begin + piece, length);
    BoundBackbone::Call call{.state = cached_ ? &state_ : nullptr};
    if (all.mask) call.batch.mask = all.mask->slice(1, begin, end).to(model_->device());
    hidden = model_->hidden(all.tokens.slice(1, begin, end).to(model_->device()), call);
  }
  logits_ = model_->head(hidden.slice(1, -1)).squeeze(1);
  if (!all.places) return;
  const at::Tensor places = all.places->to(model_->device());
  logits_ = logits_.index_select(0, places);
  if (cached_) state_ = state_.select(places);
}

// The newest token of the rows that are kept.
void Generator::read_on(const Tokens& kept) {
  const bool all = kept.size() == texts_.size();
  const Tokens& tokens = generation_.newest();
  std::vector<Tokens> texts;
  for (size_t i = 0; i < kept.size(); ++i) {
    texts.push_back(std::move(texts_[kept[i]]));
    texts.back().push_back(tokens[i]);
  }
  texts_ = std::move(texts);
  if (!cached_) return read();
  if (!all) state_ = state_.select(at::tensor(kept).to(model_->device()));
  const at::Tensor newest = at::tensor(tokens).unsqueeze(1).to(model_->device());
  logits_ = model_->head(model_->hidden(newest, {.state = &state_})).squeeze(1);
}

std::vector<Tokens> generate(LanguageModel& model, const std::vector<Tokens>& prompts, const GenerateOptions& options,
                             const OnToken& on_token) {
  Generator generator(model->bound(), prompts, options);
  std::vector<Tokens> made(prompts.size());
  for (auto tokens = generator.next(); !tokens.empty(); tokens = generator.next())
    for (const auto& [row, token] : tokens) {
      made[row].push_back(token);
      if (on_token && !on_token(static_cast<size_t>(row), token)) generator.stop(row);
    }
  return made;
}

}  // namespace fem
