#pragma once

#include <memory>
#include <vector>

#include "fem/language_model.h"
#include "models/backbone.h"

namespace fem {

// Embedding, backbone and head as a function, bound to weights that somebody else holds.
class BoundLanguageModel {
 public:
  // weights in the order of language_model_parameters(options).
  BoundLanguageModel(const LanguageModelOptions& options, const std::vector<at::Tensor>& weights);

  at::Tensor embed(const at::Tensor& tokens) const;
  at::Tensor hidden(const at::Tensor& tokens, const BoundBackbone::Call& call) const;
  at::Tensor head(const at::Tensor& hidden) const;
  at::Device device() const { return embedding_.device(); }

  // How many tokens there are (LanguageModelImpl::tokens), and the same model with fewer.
  int64_t tokens() const { return tokens_; }
  std::shared_ptr<const BoundLanguageModel> limited(int64_t tokens) const;

  const LanguageModelOptions options;

 private:
  int64_t tokens_;
  at::Tensor embedding_, head_;
  BoundBackbone backbone_;
};

}  // namespace fem
