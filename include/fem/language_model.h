#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fem/backbone.h"
#include "fem/mixer.h"

namespace fem {

inline constexpr int64_t kLargestVocabulary = 1 << 24;

// A decoder: embedding, backbone, head.
struct LanguageModelOptions : BackboneOptions {
  int64_t vocab_size = 0;
  bool tie_embeddings = true;
};

// Calls visit(name, field, help) for every field but mixer.
template <typename Options, typename Visitor>
void visit_language_model_options(Options& o, Visitor&& visit) {
  visit("vocab_size", o.vocab_size, "tokens of the vocabulary; 0 in a recipe: the tokenizer's");
  visit_backbone_options(o, visit);
  visit("tie_embeddings", o.tie_embeddings, "the head is the embedding");
}

// Throws one clear sentence unless a model can be made of the options.
void check(const LanguageModelOptions& options);

// Every parameter of a configuration in a fixed order, without allocating it.
std::vector<ParameterSpec> language_model_parameters(const LanguageModelOptions& options);
int64_t parameter_count(const std::vector<ParameterSpec>& parameters);

using LanguageModelState = BackboneState;

class BoundLanguageModel;

class LanguageModelImpl : public torch::nn::Module {
 public:
  explicit LanguageModelImpl(const LanguageModelOptions& options);

  // tokens [B, T] -> logits [B, T, tokens()]. batch: padding, or the borders of documents packed in one row.
  at::Tensor forward(const at::Tensor& tokens, const Batch& batch = {});
  // Continues where the state stands and moves it on; without gradients.
  at::Tensor forward(const at::Tensor& tokens, LanguageModelState& state, const Batch& batch = {});

  // What the head reads: [B, T, D], normed. Blocks are computed again in backward where recompute is set.
  at::Tensor hidden(const at::Tensor& tokens, const Batch& batch = {}, LanguageModelState* state = nullptr);
  at::Tensor head(const at::Tensor& hidden);

  // Nats of every target [B, T] given the tokens up to its place; 0 where the target is kIgnored.
  static constexpr int64_t kIgnored = -100;
  at::Tensor surprise(const at::Tensor& tokens, const at::Tensor& targets, const Batch& batch = {});

  Trace trace(const at::Tensor& tokens, const Batch& batch = {});

  // The same as a function of the parameters, for those that go on for longer than a call.
  const std::shared_ptr<const BoundLanguageModel>& bound() const { return bound_; }

  // How many tokens there are: vocab_size, or fewer if the tokenizer has fewer. What a vocabulary has beyond them has
  // no logits, is in no softmax and is never generated.
  int64_t tokens() const;
  void limit_tokens(int64_t count);

  const LanguageModelOptions options;
  bool recompute = false;  // trade time for memory: keep only the input of each block for backward

 private:
  std::shared_ptr<const BoundLanguageModel> bound_;
};

class LanguageModel : public torch::nn::ModuleHolder<LanguageModelImpl> {
 public:
  using torch::nn::ModuleHolder<LanguageModelImpl>::ModuleHolder;
  using Impl = LanguageModelImpl;

  template <typename... Arguments>
  at::Tensor operator()(Arguments&&... arguments) const {
    return impl_->forward(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace fem
