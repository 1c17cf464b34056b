// Which parameters weight decay is for, of every prior and every token mixer.
#include <gtest/gtest.h>

#include <set>

#include "fem/language_model.h"

namespace fem {
namespace {

using Names = std::set<std::string>;

BackboneOptions one_block(BlockMixer mixer, PriorType prior) {
  BackboneOptions options{.n_embd = 32, .n_head = 2, .n_layer = 1, .mlp_width = 48, .block_mixer = mixer};
  options.mixer.prior_type = prior;
  return options;
}

Names decayed(const std::vector<ParameterSpec>& specs) {
  Names names;
  for (const ParameterSpec& spec : specs)
    if (spec.decays) names.insert(spec.name);
  return names;
}

Names decayed_of_prior(PriorType prior, bool interact = false) {
  MixerOptions options = one_block(BlockMixer::kFem, prior).mixer;
  options.n_embd = 32;
  options.n_head = 2;
  options.mamba_interact = interact;
  return decayed(mixer_parameters(options));
}

// Of the layer around any prior.
Names with_the_layers(Names names) {
  names.merge(Names{"W_v.weight", "W_o.weight", "W_lambda.weight", "W_gate.weight", "tdc.fwd.in_f.weight",
                    "tdc.fwd.x_f.weight", "tdc.fwd.shortcut.weight", "tdc.fwd.out_proj"});
  return names;
}

TEST(WeightDecay, IsForTheMatricesOfEveryPriorAndForNothingElse) {
  const Names query_and_key{"W_q.weight", "W_k.weight"};
  EXPECT_EQ(decayed_of_prior(PriorType::kSoftmax), with_the_layers(query_and_key));
  EXPECT_EQ(decayed_of_prior(PriorType::kLinear), with_the_layers(query_and_key));
  EXPECT_EQ(decayed_of_prior(PriorType::kGla), with_the_layers({"W_q.weight", "W_k.weight", "W_decay.weight"}));
  EXPECT_EQ(decayed_of_prior(PriorType::kRnnSoftmax), with_the_layers(query_and_key));
  EXPECT_EQ(decayed_of_prior(PriorType::kRnnDecay), with_the_layers({"W_decay.weight"}));
  EXPECT_EQ(decayed_of_prior(PriorType::kMamba), with_the_layers({"W_p.weight"}));  // neither A_log nor D_diag
  EXPECT_EQ(decayed_of_prior(PriorType::kMamba, /*interact=*/true), with_the_layers({"W_p.weight"}));
}

TEST(WeightDecay, LeavesAloneWhatHasOneDimension) {
  for (const auto& [name, prior] : Spelling<PriorType>::values) {
    const BackboneOptions options = one_block(BlockMixer::kFem, prior);
    for (const ParameterSpec& spec : backbone_parameters(options))
      EXPECT_TRUE(spec.shape.size() > 1 || !spec.decays) << name << " " << spec.name;
  }
}

TEST(WeightDecay, IsForTheMatricesOfEveryTokenMixer) {
  const Names mlp{"blocks.0.mlp.gate.weight", "blocks.0.mlp.up.weight", "blocks.0.mlp.down.weight"};
  Names attention = mlp, fem = mlp;  // of diff_attention, too: no lambda decays
  for (const char* name : {"query", "key", "value", "output"})
    attention.insert("blocks.0.mixer." + std::string(name) + ".weight");
  for (const std::string& name : with_the_layers({"W_q.weight", "W_k.weight"})) fem.insert("blocks.0.mixer." + name);
  EXPECT_EQ(decayed(backbone_parameters(one_block(BlockMixer::kAttention, PriorType::kSoftmax))), attention);
  EXPECT_EQ(decayed(backbone_parameters(one_block(BlockMixer::kDiffAttention, PriorType::kSoftmax))), attention);
  EXPECT_EQ(decayed(backbone_parameters(one_block(BlockMixer::kFem, PriorType::kSoftmax))), fem);
  const auto with_the_mlp = [&](std::initializer_list<const char*> mixer) {
    Names names = mlp;
    for (const char* name : mixer) names.insert("blocks.0.mixer." + std::string(name) + ".weight");
    return names;
  };
  const auto of = [](BlockMixer mixer) { return decayed(backbone_parameters(one_block(mixer, PriorType::kSoftmax))); };
  // Neither short convolutions nor what makes hyena's filter.
  EXPECT_EQ(of(BlockMixer::kHyena), with_the_mlp({"input", "output"}));
  EXPECT_EQ(of(BlockMixer::kDeltaNet), with_the_mlp({"input", "strength", "output"}));
  EXPECT_EQ(of(BlockMixer::kGatedDeltaNet), with_the_mlp({"input", "strength", "decay", "gate", "output"}));
  EXPECT_EQ(of(BlockMixer::kMamba2), with_the_mlp({"gate", "input", "step", "output"}));
  for (const BlockMixer mixer :
       {BlockMixer::kNewton, BlockMixer::kNewtonLight, BlockMixer::kLinearDescent, BlockMixer::kGatedDescent})
    EXPECT_EQ(of(mixer), attention);  // neither the scale of the curvature nor what energies fade by
  static_assert(Spelling<BlockMixer>::values.size() == 11, "a new token mixer needs a line here");
}

TEST(WeightDecay, IsForEmbeddingAndHead) {
  LanguageModelOptions options;
  static_cast<BackboneOptions&>(options) = one_block(BlockMixer::kAttention, PriorType::kSoftmax);
  options.vocab_size = 17;
  options.tie_embeddings = false;
  const Names names = decayed(language_model_parameters(options));
  EXPECT_TRUE(names.contains("embedding.weight") && names.contains("head.weight"));
}

}  // namespace
}  // namespace fem
