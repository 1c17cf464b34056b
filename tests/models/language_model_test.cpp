#include "fem/language_model.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "fem/io/model_folder.h"
#include "fem/io/safetensors.h"
#include "io/temporary_folder.h"
#include "models/small_models.h"
#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::every_mixer;
using testing::fails_with;
using testing::MixerChoice;
using testing::random_model;

constexpr int64_t kVocabulary = 23;

at::Tensor random_tokens(int64_t batch, int64_t length) {
  at::manual_seed(3);
  return at::randint(kVocabulary, {batch, length}, at::kLong);
}

class LanguageModelOf : public ::testing::TestWithParam<MixerChoice> {
 protected:
  at::NoGradGuard no_grad;
  LanguageModel model = random_model(GetParam(), kVocabulary);
};

TEST_P(LanguageModelOf, HasTheParametersItDeclares) {
  const std::vector<ParameterSpec> specs = language_model_parameters(model->options);
  const auto named = model->named_parameters();
  ASSERT_EQ(specs.size(), named.size());
  int64_t count = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSERT_TRUE(named.contains(specs[i].name)) << specs[i].name;
    EXPECT_EQ(named[specs[i].name].sizes(), at::IntArrayRef(specs[i].shape)) << specs[i].name;
    count += named[specs[i].name].numel();
  }
  EXPECT_EQ(parameter_count(specs), count);
}

TEST_P(LanguageModelOf, SeesNoLaterToken) {
  const at::Tensor tokens = random_tokens(2, 17);
  at::Tensor changed = tokens.clone();
  changed.slice(1, 9) = (changed.slice(1, 9) + 1) % kVocabulary;
  const at::Tensor before = model(tokens), after = model(changed);
  const at::Tensor early = before.slice(1, 0, 9), still = after.slice(1, 0, 9);
  // A transform rounds all tokens together.
  if (GetParam().block_mixer == BlockMixer::kHyena)
    EXPECT_TRUE(testing::close(still, early, testing::kFloat32Layer));
  else
    EXPECT_TRUE(still.equal(early));
  EXPECT_FALSE(at::allclose(before.slice(1, 9), after.slice(1, 9)));
}

TEST_P(LanguageModelOf, PackedDocumentsDoNotSeeEachOther) {
  const at::Tensor tokens = random_tokens(1, 30);
  const std::vector<int64_t> borders{0, 7, 14, 15, 15, 30};
  const at::Tensor packed = model(tokens, Batch{.cu_seqlens = at::tensor(borders)});
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const int64_t length = borders[i + 1] - borders[i];
    if (length == 0) continue;
    const at::Tensor alone = model(tokens.narrow(1, borders[i], length));
    EXPECT_TRUE(at::allclose(packed.narrow(1, borders[i], length), alone, 1e-4, 1e-4)) << "document " << i;
  }
}

TEST_P(LanguageModelOf, ReadsInPartsAsInOneAndPaddingChangesNothing) {
  const at::Tensor tokens = random_tokens(2, 12);
  const at::Tensor whole = model(tokens);
  for (const int64_t cut : {1, 5, 11}) {
    LanguageModelState state;
    const at::Tensor first = model(tokens.slice(1, 0, cut), state), second = model(tokens.slice(1, cut), state);
    EXPECT_TRUE(at::allclose(at::cat({first, second}, 1), whole, 1e-4, 1e-4)) << "cut at " << cut;
  }
  // Three tokens of padding to the left of the second row, then one more token for both.
  at::Tensor mask = at::ones({2, 8}, at::kBool);
  mask[1].slice(0, 0, 3).fill_(false);
  LanguageModelState state;
  const at::Tensor first = model(tokens.slice(1, 0, 8), state, Batch{.mask = mask});
  const at::Tensor second = model(tokens.slice(1, 8, 9), state);
  const at::Tensor alone = model(tokens.slice(0, 1, 2).slice(1, 3, 9));
  EXPECT_TRUE(at::allclose(first[1].slice(0, 3), alone[0].slice(0, 0, 5), 1e-4, 1e-4));
  EXPECT_TRUE(at::allclose(second[1], alone[0].slice(0, 5), 1e-4, 1e-4));
  EXPECT_TRUE(at::allclose(second[0], whole[0].slice(0, 8, 9), 1e-4, 1e-4));
}

TEST_P(LanguageModelOf, GivesTheSameGradientsWhenBlocksAreRecomputed) {
  const at::AutoGradMode with_gradients(true);
  const at::Tensor tokens = random_tokens(1, 20), targets = random_tokens(1, 20).flip(1);
  const auto gradients = [&](bool recompute) {
    model->recompute = recompute;
    model->zero_grad();
    model->surprise(tokens, targets, {.cu_seqlens = at::tensor({0, 8, 20})}).sum().backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : model->parameters()) all.push_back(parameter.grad().clone());
    return all;
  };
  const std::vector<at::Tensor> kept = gradients(false), again = gradients(true);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i].equal(again[i])) << model->named_parameters().keys()[i];
}

std::string choice_name(const ::testing::TestParamInfo<MixerChoice>& info) { return testing::name_of(info.param); }
INSTANTIATE_TEST_SUITE_P(Every, LanguageModelOf, ::testing::ValuesIn(every_mixer()), choice_name);

TEST(LanguageModels, SurpriseInBlocksIsCrossEntropyWithItsGradient) {
  LanguageModelOptions options;
  options.vocab_size = 50000;
  options.n_embd = 8;
  options.n_head = options.n_layer = 1;
  options.mlp_width = 8;
  options.block_mixer = BlockMixer::kAttention;
  LanguageModel model(options);
  const at::Tensor tokens = at::randint(options.vocab_size, {1, 400}, at::kLong), targets = tokens.roll(-1, 1);
  const auto embedding = model->parameters()[0];
  const at::Tensor whole =
      at::cross_entropy_loss(model(tokens).flatten(0, 1), targets.flatten(), {}, at::Reduction::None);
  const at::Tensor expected = torch::autograd::grad({whole.sum()}, {embedding})[0];
  const at::Tensor blocks = model->surprise(tokens, targets);
  blocks.sum().backward();
  EXPECT_TRUE(at::allclose(blocks.flatten(), whole, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(embedding.grad(), expected, 1e-4, 1e-5));
}

TEST(LanguageModels, IgnoredTargetsHaveNoLossAndNoGradient) {
  LanguageModel model = random_model(every_mixer()[1], kVocabulary);
  const at::Tensor tokens = random_tokens(2, 6), whole = model->surprise(tokens, tokens);
  at::Tensor targets = tokens.clone();
  targets.slice(1, 4).fill_(LanguageModelImpl::kIgnored);
  const at::Tensor some = model->surprise(tokens, targets);
  EXPECT_TRUE(some.slice(1, 0, 4).equal(whole.slice(1, 0, 4)));
  EXPECT_TRUE(some.slice(1, 4).eq(0).all().item<bool>());
  const auto gradient = [&](const at::Tensor& loss) {
    return torch::autograd::grad({loss}, {model->parameters()[0]}, {}, /*retain_graph=*/true)[0];
  };
  EXPECT_TRUE(at::allclose(gradient(some.sum()), gradient(whole.slice(1, 0, 4).sum()), 1e-5, 1e-6));
}

TEST(LanguageModels, WrongTokensAndOptionsAreRefused) {
  LanguageModel model = random_model(every_mixer()[1], kVocabulary);
  EXPECT_TRUE(fails_with("expected tokens from 0 to 22, got 23", [&] { model(at::full({1, 2}, 23, at::kLong)); }));
  EXPECT_TRUE(fails_with("got -1", [&] { model(at::full({1, 2}, -1, at::kLong)); }));
  EXPECT_TRUE(fails_with("int64 or int32 [B, T], got Float", [&] { model(at::zeros({1, 2})); }));
  LanguageModelOptions options = model->options;
  options.mixer.causal = false;
  EXPECT_TRUE(fails_with("expected a causal mixer", [&] { language_model_parameters(options); }));
  options = model->options;
  options.block_mixer = BlockMixer::kAttention;
  EXPECT_TRUE(fails_with("plain attention has no mixer option conv_hidden", [&] { LanguageModel{options}; }));
  options.n_layer = 0;
  EXPECT_TRUE(fails_with("expected n_layer of at least 1, got 0", [&] { LanguageModel{options}; }));
}

TEST(LanguageModelStates, BelongToTheirModel) {
  const at::NoGradGuard no_gradients;
  const MixerChoice attention = every_mixer()[0];
  const at::Tensor tokens = random_tokens(2, 5);
  LanguageModel model = random_model(attention, kVocabulary);
  LanguageModelState state;
  model(tokens, state);
  const at::Tensor expected = model(tokens.repeat({1, 2})).slice(1, 5);
  const auto refused_by = [&](const LanguageModelOptions& options, const std::string& text) {
    LanguageModel other(options);
    const auto refused = fails_with(text, [&] { other(tokens, state); });
    LanguageModelState copy = state;
    EXPECT_TRUE(at::allclose(model(tokens, copy), expected, 1e-4, 1e-4)) << "the refused state has changed";
    return refused;
  };

  LanguageModelOptions options = model->options;
  options.n_layer = 3;
  EXPECT_TRUE(refused_by(options, "backbone: expected a state of 3 layers, got one of 2; it belongs to another"));
  options = model->options;
  options.mixer.use_rope = false;
  EXPECT_TRUE(refused_by(options,
                         "attention: expected a state of the layer (attention, no rope), got one of the layer "
                         "(attention, rope 10000); a state belongs to the layer that began it"));
  options.mixer.use_rope = true;
  options.mixer.rope_theta = 100;
  EXPECT_TRUE(refused_by(options, "expected a state of the layer (attention, rope 100), got one of"));
  options = model->options;
  options.n_head = options.mixer.n_head = 4;
  EXPECT_TRUE(refused_by(options, "expected the state's key as Float [2, 5, 4, 4] on cpu, got Float [2, 5, 2, 8]"));
  EXPECT_TRUE(refused_by(random_model({BlockMixer::kFem, PriorType::kSoftmax}, kVocabulary)->options,
                         "mix: expected a state of the layer (softmax, corrected, rope 10000), got one of the layer "
                         "(attention, rope 10000)"));
  EXPECT_TRUE(fails_with("attention: expected x with the state's batch size 2, got [1, 5, 16]",
                         [&] { model(random_tokens(1, 5), state); }));

  const auto damaged = [&](const std::function<void(MixerState&)>& damage, const std::string& text) {
    LanguageModelState copy = state;
    damage(copy.layers[1]);
    return fails_with(text, [&] { model(tokens, copy); });
  };
  EXPECT_TRUE(damaged([](MixerState& s) { s.tokens = 3; }, "have all seen the same tokens, got one of 5 and one of 3"));
  EXPECT_TRUE(damaged([](MixerState& s) { s.caches.erase("value"); }, "expected the state to hold value of the 5"));
  EXPECT_TRUE(damaged([](MixerState& s) { s.positions = at::full({2}, 5, at::kLong); },
                      "expected the state to hold visible of the 5 tokens"));
  for (MixerState& layer : state.layers) layer.tokens = -5;
  EXPECT_TRUE(fails_with("attention: expected a new state or one that has seen tokens, up to 2^53, got tokens = -5",
                         [&] { model(tokens, state); }));
}

TEST(LanguageModelStates, CarryNoGradientsAndNoPackedSequences) {
  for (const MixerChoice& choice : {every_mixer()[0], every_mixer()[1]}) {
    LanguageModel model = random_model(choice, kVocabulary);
    LanguageModelState state;
    EXPECT_TRUE(fails_with("a state carries no gradients", [&] { model(random_tokens(1, 4), state); }));
    const at::NoGradGuard no_gradients;
    EXPECT_TRUE(fails_with("a state cannot continue packed sequences",
                           [&] { model(random_tokens(1, 4), state, Batch{.cu_seqlens = at::tensor({0, 2, 4})}); }));
    EXPECT_TRUE(state.layers.empty());
  }
}

class ModelFolder : public testing::TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    save_language_model(folder, model);
  }
  LanguageModel model = random_model({BlockMixer::kFem, PriorType::kGla}, kVocabulary);
};

TEST_F(ModelFolder, BringsBackTheSameModel) {
  const at::Tensor tokens = random_tokens(2, 9);
  EXPECT_TRUE(load_language_model(folder)(tokens).equal(model(tokens)));
}

TEST_F(ModelFolder, SaysWhatIsMissingOrDoesNotFit) {
  const auto loading = [&] { load_language_model(folder); };
  Safetensors content = load_safetensors(folder / "model.safetensors");
  const at::Tensor norm = content.tensors["norm.weight"];
  content.tensors.erase("norm.weight");
  save_safetensors(folder / "model.safetensors", content);
  EXPECT_TRUE(fails_with("has no norm.weight", loading));
  content.tensors["norm.weight"] = at::ones({3});
  save_safetensors(folder / "model.safetensors", content);
  EXPECT_TRUE(fails_with("expected norm.weight of shape [16] as asked for by config.json beside it, got [3]", loading));
  content.tensors["norm.weight"] = norm;
  content.tensors["more"] = norm;
  save_safetensors(folder / "model.safetensors", content);
  EXPECT_TRUE(fails_with("holds more, not asked for by config.json beside it", loading));

  const std::string bytes = read(folder / "model.safetensors");
  write(folder / "model.safetensors", bytes.substr(0, bytes.size() / 2));
  EXPECT_TRUE(fails_with("model.safetensors", loading));
  std::string config = read(folder / "config.json");
  write(folder / "config.json", "{\"model_type\": \"gpt2\"}");
  EXPECT_TRUE(fails_with("it is another model's or damaged", loading));
  write(folder / "config.json", "{\"model_type\": \"fem_language_model\", \"n_layers\": 3}");
  EXPECT_TRUE(fails_with("expected the field vocab_size, which is missing", loading));
  write(folder / "config.json", config.insert(1, "\"n_layers\": 3, "));
  EXPECT_TRUE(fails_with("unknown field \"n_layers\"", loading));
  std::filesystem::remove(folder / "config.json");
  EXPECT_TRUE(fails_with("a model is a folder with config.json and model.safetensors", loading));
}

}  // namespace
}  // namespace fem
