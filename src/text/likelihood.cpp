#include "fem/text/likelihood.h"

#include <ATen/ATen.h>

#include "models/evaluation_mode.h"
#include "text/scoring.h"
#include "util/check.h"

namespace fem {
namespace {

ScoredTokens scored(const Continuation& text, const Tokenizer& tokenizer) {
  FEM_CHECK(!text.continuation.empty(), "likelihood: expected a continuation, got an empty one after \"", text.context,
            "\"");
  const std::vector<int64_t> whole = tokenizer.encode(text.context + text.continuation);
  const int64_t begin = first_beyond(tokenizer.encode(text.context), whole);
  ScoredTokens sequence{{tokenizer.separator()}, 1 + begin};
  sequence.tokens.insert(sequence.tokens.end(), whole.begin(), whole.end());
  return sequence;
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

Continuation parted_before_space(Continuation text) {
  const size_t last = text.context.find_last_not_of(" \t\n\v\f\r");
  const size_t end = last == std::string::npos ? 0 : last + 1;
  text.continuation.insert(0, text.context, end);
  text.context.resize(end);
  return text;
}

}  // namespace fem
