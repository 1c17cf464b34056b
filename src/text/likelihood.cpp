#include "fem/text/likelihood.h"

#include <ATen/ATen.h>

#include "models/evaluation_mode.h"
#include "text/scoring.h"

namespace fem {
namespace {

ScoredTokens scored(const Continuation& text, const Tokenizer& tokenizer) {
  const auto [context, continuation] = parted_before_space(text);
  return scored_pair(tokenizer.separator(), tokenizer.encode(context), tokenizer.encode(context + continuation));
}

}  // namespace

std::vector<Likelihood> likelihoods(LanguageModel& model, const Tokenizer& tokenizer,
                                    const std::vector<Continuation>& texts, int64_t batch_tokens,
                                    const std::function<void(int64_t done)>& on_scored) {
  std::vector<ScoredTokens> sequences;
  for (const Continuation& text : texts) sequences.push_back(scored(text, tokenizer));
  ScoredRows rows(std::move(sequences), batch_tokens, model->tokens());

  const EvaluationMode mode(model);
  const at::Device device = model->parameters().front().device();
  while (rows.next()) {
    const Batch batch{.cu_seqlens = rows.cu_seqlens().to(device)};
    const at::Tensor hidden = model->hidden(rows.tokens().to(device), batch).squeeze(0);
    for (const at::Tensor& part : hidden.index_select(0, rows.places().to(device)).split(rows.at_once()))
      rows.add(model->head(part));
    if (on_scored) on_scored(rows.scored());
  }
  return rows.results();
}

}  // namespace fem
