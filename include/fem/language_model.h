#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <utility>
#include <vector>

#include "fem/mixer.h"

namespace fem {

// What mixes the tokens of a block: a Free Energy Mixer, or plain attention on torch's fused kernels to compare it
// with.
enum class BlockMixer { kFem, kAttention };
template <>
struct Spelling<BlockMixer> {
  static constexpr std::array values{std::pair{std::string_view("fem"), BlockMixer::kFem},
                                     std::pair{std::string_view("attention"), BlockMixer::kAttention}};
};

// A pre-norm decoder: embedding, blocks of mixer and SwiGLU MLP, norm, head.
struct LanguageModelOptions {
  int64_t vocab_size = 0;
  int64_t n_embd = 0;
  int64_t n_head = 0;
  int64_t n_layer = 0;
  int64_t mlp_width = 0;
  bool tie_embeddings = true;
  double norm_eps = 1e-5;
  BlockMixer block_mixer = BlockMixer::kFem;
  MixerOptions mixer;  // n_embd and n_head follow the model's
};

// Calls visit(name, field, help) for every field but mixer.
template <typename Options, typename Visitor>
void visit_language_model_options(Options& o, Visitor&& visit) {
  visit("vocab_size", o.vocab_size, "tokens of the vocabulary; 0 in a recipe: the tokenizer's");
  visit("n_embd", o.n_embd, "model width D");
  visit("n_head", o.n_head, "heads H");
  visit("n_layer", o.n_layer, "blocks");
  visit("mlp_width", o.mlp_width, "hidden width of the SwiGLU MLP");
  visit("tie_embeddings", o.tie_embeddings, "the head is the embedding");
  visit("norm_eps", o.norm_eps, "added to the mean square in RMSNorm");
  visit("block_mixer", o.block_mixer, "fem, or attention: plain attention on torch's kernels");
}

// Every parameter of a configuration in a fixed order, without allocating it.
std::vector<ParameterSpec> language_model_parameters(const LanguageModelOptions& options);
int64_t parameter_count(const std::vector<ParameterSpec>& parameters);

// What a model remembers of the tokens it has seen. Copies are snapshots, as a MixerState's.
struct LanguageModelState {
  std::vector<MixerState> layers;

  LanguageModelState select(const at::Tensor& batch_index) const;  // rows by index: reorder, repeat or drop
};

class LanguageModelImpl : public torch::nn::Module {
 public:
  explicit LanguageModelImpl(const LanguageModelOptions& options);

  // tokens [B, T] -> logits [B, T, vocab_size]. batch: padding, or the borders of documents packed in one row.
  at::Tensor forward(const at::Tensor& tokens, const Batch& batch = {});
  // Continues where the state stands and moves it on; without gradients.
  at::Tensor forward(const at::Tensor& tokens, LanguageModelState& state, const Batch& batch = {});

  // What the head reads: [B, T, D], normed. Blocks are computed again in backward where recompute is set.
  at::Tensor hidden(const at::Tensor& tokens, const Batch& batch = {}, LanguageModelState* state = nullptr);
  at::Tensor head(const at::Tensor& hidden);

  // Nats of every target [B, T] given the tokens up to its place.
  at::Tensor surprise(const at::Tensor& tokens, const at::Tensor& targets, const Batch& batch = {});

  // The name and value of everything a forward pass makes, in order, for finding where numbers stop being finite.
  std::vector<std::pair<std::string, at::Tensor>> trace(const at::Tensor& tokens, const Batch& batch = {});

  const LanguageModelOptions options;
  bool recompute = false;  // trade time for memory: keep only the input of each block for backward

 private:
  struct Block;
  at::Tensor embed(const at::Tensor& tokens) const;
  at::Tensor mixed(const Block& block, const at::Tensor& x, const Batch& batch, MixerState* state) const;
  at::Tensor thought(const Block& block, const at::Tensor& x) const;

  at::Tensor embedding_, norm_, head_;
  std::vector<std::shared_ptr<Block>> blocks_;
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
