#include "models/language_model.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "fem/ops/project.h"
#include "models/logits_at_once.h"
#include "models/recompute.h"
#include "nn/parameters.h"
#include "util/check.h"

namespace fem {
namespace {

LanguageModelOptions checked_model(const LanguageModelOptions& given) {
  FEM_CHECK(given.vocab_size >= 1, "language model: expected vocab_size of at least 1, got ", given.vocab_size);
  FEM_CHECK(given.vocab_size <= kLargestVocabulary, "language model: expected vocab_size of at most ",
            kLargestVocabulary, ", got ", given.vocab_size);
  const LanguageModelOptions o = completed(given, "language model");
  FEM_CHECK(o.mixer.causal, "language model: expected a causal mixer, got mixer.causal = false");
  return o;
}

ParameterSpec token_matrix(std::string name, const LanguageModelOptions& o) {
  return matrix_spec(std::move(name), o.vocab_size, o.n_embd);
}

// bfloat16 as float32: a sum over the vocabulary needs the digits.
at::Tensor with_wide_sums(const at::Tensor& logits) { return logits.to(at::toOpMathType(logits.scalar_type())); }

}  // namespace

void check(const LanguageModelOptions& options) { checked_model(options); }

std::vector<ParameterSpec> language_model_parameters(const LanguageModelOptions& options) {
  const LanguageModelOptions o = checked_model(options);
  std::vector<ParameterSpec> specs{token_matrix("embedding.weight", o)};
  for (ParameterSpec& spec : backbone_parameters(o)) specs.push_back(std::move(spec));
  if (!o.tie_embeddings) specs.push_back(token_matrix("head.weight", o));
  return specs;
}

int64_t parameter_count(const std::vector<ParameterSpec>& parameters) {
  int64_t count = 0;
  for (const ParameterSpec& spec : parameters) count += c10::multiply_integers(spec.shape);
  return count;
}

BoundLanguageModel::BoundLanguageModel(const LanguageModelOptions& given, const std::vector<at::Tensor>& weights)
    : options(checked_model(given)),
      tokens_(options.vocab_size),
      embedding_(weights.front()),
      head_(options.tie_embeddings ? weights.front() : weights.back()),
      backbone_(options, {weights.begin() + 1, options.tie_embeddings ? weights.end() : weights.end() - 1}) {}

at::Tensor BoundLanguageModel::embed(const at::Tensor& tokens) const {
  FEM_CHECK(tokens.dim() == 2 && (tokens.scalar_type() == at::kLong || tokens.scalar_type() == at::kInt),
            "language model: expected tokens as int64 or int32 [B, T], got ", tokens.scalar_type(), " ",
            shape_of(tokens));
  if (tokens.numel() > 0) {
    const int64_t lowest = tokens.min().item<int64_t>(), highest = tokens.max().item<int64_t>();
    FEM_CHECK(lowest >= 0 && highest < tokens_, "language model: expected tokens from 0 to ", tokens_ - 1, ", got ",
              lowest < 0 ? lowest : highest, "; is it another tokenizer than the model's?");
  }
  return at::embedding(embedding_, tokens);
}

at::Tensor BoundLanguageModel::hidden(const at::Tensor& tokens, const BoundBackbone::Call& call) const {
  return backbone_(embed(tokens), call);
}

at::Tensor BoundLanguageModel::head(const at::Tensor& hidden) const {
  return project(hidden, {tokens_ < options.vocab_size ? head_.narrow(0, 0, tokens_) : head_})[0];
}

std::shared_ptr<const BoundLanguageModel> BoundLanguageModel::limited(int64_t tokens) const {
  FEM_CHECK(tokens >= 1 && tokens <= options.vocab_size,
            "language model: expected from 1 to vocab_size = ", options.vocab_size, " tokens, got ", tokens,
            "; is it another model's tokenizer?");
  auto model = std::make_shared<BoundLanguageModel>(*this);
  model->tokens_ = tokens;
  return model;
}

LanguageModelImpl::LanguageModelImpl(const LanguageModelOptions& given)
    : options(checked_model(given)),
      bound_(std::make_shared<BoundLanguageModel>(options,
                                                  register_parameters(*this, language_model_parameters(options)))) {}

at::Tensor LanguageModelImpl::forward(const at::Tensor& tokens, const Batch& batch) {
  return head(hidden(tokens, batch));
}

at::Tensor LanguageModelImpl::forward(const at::Tensor& tokens, LanguageModelState& state, const Batch& batch) {
  return head(hidden(tokens, batch, &state));
}

at::Tensor LanguageModelImpl::hidden(const at::Tensor& tokens, const Batch& batch, LanguageModelState* state) {
  return bound_->hidden(tokens, {.batch = batch, .state = state, .training = is_training(), .recompute = recompute});
}

at::Tensor LanguageModelImpl::head(const at::Tensor& hidden) { return bound_->head(hidden); }

int64_t LanguageModelImpl::tokens() const { return bound_->tokens(); }

void LanguageModelImpl::limit_tokens(int64_t count) { bound_ = bound_->limited(count); }

at::Tensor LanguageModelImpl::surprise(const at::Tensor& tokens, const at::Tensor& targets, const Batch& batch) {
  FEM_CHECK(targets.sizes() == tokens.sizes(), "language model: expected a target for every token, ", shape_of(tokens),
            ", got ", shape_of(targets));
  const at::Tensor rows = hidden(tokens, batch).flatten(0, 1), wanted = targets.flatten();
  const int64_t count = rows.size(0), at_once = logits_at_once(bound_->tokens());
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < count; first += at_once) {
    const at::Tensor part = wanted.narrow(0, first, std::min(at_once, count - first));
    const auto nats = [part, this](const std::vector<at::Tensor>& h) {
      return std::vector{at::cross_entropy_loss(with_wide_sums(head(h[0])), part, {}, at::Reduction::None, kIgnored)};
    };
    const std::vector<at::Tensor> h{rows.narrow(0, first, part.size(0))};
    parts.push_back((count > at_once ? recomputed(nats, h) : nats(h))[0]);
  }
  return at::cat(parts).view(targets.sizes());
}

Trace LanguageModelImpl::trace(const at::Tensor& tokens, const Batch& batch) {
  Trace made{{"embedding", bound_->embed(tokens)}};
  const at::Tensor hidden = bound_->hidden(tokens, {.batch = batch, .training = is_training(), .trace = &made});
  made.emplace_back("logits", head(hidden));
  return made;
}

}  // namespace fem
