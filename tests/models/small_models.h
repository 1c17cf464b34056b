#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "fem/language_model.h"

namespace fem::testing {

// What a block can mix by: plain attention, every prior, and what else there is to compare with.
struct MixerChoice {
  BlockMixer block_mixer;
  PriorType prior;
};

inline std::vector<MixerChoice> every_mixer() {
  std::vector<MixerChoice> choices{{BlockMixer::kAttention, PriorType::kSoftmax}};
  for (const auto& [name, prior] : Spelling<PriorType>::values) choices.push_back({BlockMixer::kFem, prior});
  for (const auto& [name, mixer] : Spelling<BlockMixer>::values)
    if (mixer != BlockMixer::kFem && mixer != BlockMixer::kAttention) choices.push_back({mixer, PriorType::kSoftmax});
  return choices;
}

// Encoders are not made of what is causal by nature.
inline bool only_causal(const MixerChoice& choice) {
  const std::set<BlockMixer> causal{BlockMixer::kHyena,  BlockMixer::kDeltaNet,      BlockMixer::kGatedDeltaNet,
                                    BlockMixer::kMamba2, BlockMixer::kLinearDescent, BlockMixer::kGatedDescent};
  return causal.count(choice.block_mixer) > 0;
}

inline std::string name_of(const MixerChoice& choice) {
  return choice.block_mixer == BlockMixer::kFem ? spelled(choice.prior) : spelled(choice.block_mixer);
}

// A small model whose parameters are all random: as they start, nearly every token would be equally likely.
inline LanguageModel random_model(const MixerChoice& choice, int64_t vocab_size) {
  LanguageModelOptions options;
  options.vocab_size = vocab_size;
  options.n_embd = 16;
  options.n_head = 2;
  options.n_layer = 2;
  options.mlp_width = 24;
  options.tie_embeddings = false;
  options.block_mixer = choice.block_mixer;
  if (choice.block_mixer == BlockMixer::kFem) {
    options.mixer.prior_type = choice.prior;
    options.mixer.conv_hidden = 6;
  }
  const at::NoGradGuard no_gradients;
  at::manual_seed(7);
  LanguageModel model(options);
  for (at::Tensor& parameter : model->parameters()) parameter.normal_(0.0, 0.5);
  return model;
}

// A model that looks at one token alone: logits[i, j] is the logit of token j after token i.
inline LanguageModel bigram_model(const at::Tensor& logits) {
  LanguageModelOptions options;
  options.vocab_size = logits.size(0);
  options.n_embd = (logits.size(0) + 15) / 16 * 16;
  options.n_head = options.n_layer = options.mlp_width = 1;
  options.tie_embeddings = false;
  options.block_mixer = BlockMixer::kAttention;
  options.mixer.bias = false;
  const at::NoGradGuard no_gradients;
  LanguageModel model(options);
  auto parameters = model->named_parameters();
  parameters["embedding.weight"].copy_(at::eye(options.vocab_size, options.n_embd));
  parameters["blocks.0.mixer.output.weight"].zero_();
  parameters["blocks.0.mlp.down.weight"].zero_();
  // The norm before the head divides by the root of the mean square of a row of the unit matrix.
  const double scale = std::sqrt(1.0 / static_cast<double>(options.n_embd) + options.norm_eps);
  parameters["head.weight"].zero_().slice(1, 0, options.vocab_size).copy_(logits.t() * scale);
  return model;
}

}  // namespace fem::testing
