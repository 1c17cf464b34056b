#include "fem/image_classifier.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fem/io/model_folder.h"
#include "fem/language_model.h"
#include "io/image_classifier_config.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

// A mixer that has an encoder's form.
struct EncoderMixer {
  BlockMixer mixer;
  PriorType prior = PriorType::kSoftmax;
};

ImageClassifierOptions small_classifier(const EncoderMixer& of = {BlockMixer::kFem}) {
  ImageClassifierOptions o;
  o.n_embd = 16;
  o.n_head = 2;
  o.n_layer = 2;
  o.mlp = MlpType::kGelu;
  o.block_mixer = of.mixer;
  if (of.mixer == BlockMixer::kFem) {
    o.mixer.prior_type = of.prior;
    o.mixer.conv_hidden = 4;
  }
  o.mixer.use_rope = false;
  o.mixer.causal = false;
  o.height = 6;
  o.width = 9;
  o.channels = 3;
  o.patch = 3;
  o.classes = {"a", "b", "c", "d"};
  o.mean = {0.5, 0.4, 0.3};
  o.deviation = {0.2, 0.3, 0.4};
  return o;
}

// No parameter is where it starts: everything counts.
ImageClassifier random_classifier(const ImageClassifierOptions& options) {
  at::manual_seed(4);
  ImageClassifier model(options);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.add_(at::randn_like(parameter), 0.2);
  model->eval();
  return model;
}

at::Tensor random_pixels(int64_t count) {
  at::manual_seed(9);
  return at::randint(256, {count, 3, 6, 9}, at::kByte);
}

class EveryEncoderMixer : public ::testing::TestWithParam<EncoderMixer> {
 protected:
  const at::NoGradGuard no_grad;
  ImageClassifier model = random_classifier(small_classifier(GetParam()));
};

TEST_P(EveryEncoderMixer, SaysOfAPictureTheSameInAnyBatch) {
  const at::Tensor pixels = random_pixels(9), together = model(model->standardised(pixels));
  EXPECT_GT(together.std(0).min().item<double>(), 1e-3);  // pictures count
  for (int64_t i = 0; i < 9; ++i)
    EXPECT_TRUE(model(model->standardised(pixels.slice(0, i, i + 1)))[0].allclose(together[i], 1e-4, 1e-5)) << i;
  const at::Tensor predicted = model->predict(pixels);
  EXPECT_TRUE(model->predict(pixels.slice(0, 2, 5)).equal(predicted.slice(0, 2, 5)));
  EXPECT_TRUE(model->predict(pixels.flip(0)).equal(predicted.flip(0)));
  EXPECT_TRUE(predicted.sum(1).allclose(at::ones({9}, at::kDouble)));
  EXPECT_EQ(model->predict(pixels.slice(0, 0, 0)).sizes(), at::IntArrayRef({0, 4}));
}

// An encoder: whatever pixel changes, the class token sees it, and it sees where.
TEST_P(EveryEncoderMixer, SeesEveryPatchAndItsPlace) {
  const at::Tensor pixels = random_pixels(1), before = model->predict(pixels);
  for (int64_t top = 0; top < 6; top += 3)
    for (int64_t left = 0; left < 9; left += 3) {
      at::Tensor other = pixels.clone();
      at::Tensor patch = other.slice(2, top, top + 3).slice(3, left, left + 3);
      patch.copy_(255 - patch);
      EXPECT_GT((model->predict(other) - before).abs().max().item<double>(), 1e-7) << top << " " << left;
    }
  const at::Tensor moved = pixels.roll({3}, {3});
  EXPECT_GT((model->predict(moved) - before).abs().max().item<double>(), 1e-7);
}

INSTANTIATE_TEST_SUITE_P(ImageClassifier, EveryEncoderMixer,
                         ::testing::Values(EncoderMixer{BlockMixer::kAttention}, EncoderMixer{BlockMixer::kFem},
                                           EncoderMixer{BlockMixer::kFem, PriorType::kGla},
                                           EncoderMixer{BlockMixer::kNewton}));

// The embedding by hand: a patch is its pixels, channel by channel and row by row.
TEST(ImageClassifier, EmbedsPatchesRowByRow) {
  const at::NoGradGuard no_grad;
  ImageClassifier model = random_classifier(small_classifier());
  const at::Tensor pictures = model->standardised(random_pixels(2));
  EXPECT_NEAR(pictures[1][2][3][4].item<double>(), (random_pixels(2)[1][2][3][4].item<double>() / 255 - 0.3) / 0.4,
              1e-5);
  const auto parameters = model->named_parameters();
  const at::Tensor embedded = model->trace(pictures).front().second;
  ASSERT_EQ(embedded.sizes(), at::IntArrayRef({2, 7, 16}));
  const at::Tensor position = parameters["position"];
  EXPECT_TRUE(embedded[1][0].allclose(parameters["class_token"] + position[0]));
  const at::Tensor patch = pictures[1].slice(1, 3, 6).slice(2, 6, 9).reshape(-1);  // the last of the second row
  const at::Tensor expected =
      at::mv(parameters["embedding.weight"], patch) + parameters["embedding.bias"] + position[6];
  EXPECT_TRUE(embedded[1][6].allclose(expected, 1e-4, 1e-5));
}

TEST(ImageClassifier, ChoosesWhatIsLeftOpen) {
  ImageClassifierOptions o = small_classifier();
  o.patch = 0;
  for (const auto& [side, patch] : {std::pair{28, 4}, {32, 4}, {24, 3}, {8, 1}, {224, 28}, {31, 31}}) {
    o.height = o.width = side;
    EXPECT_EQ(with_widths(o).patch, patch) << side;
  }
  EXPECT_EQ(with_widths(o).mlp_width, 64);
}

TEST(ImageClassifier, IsRefusedWithASentence) {
  const auto refused = [](const std::string& sentence, const std::function<void(ImageClassifierOptions&)>& change) {
    ImageClassifierOptions o = small_classifier();
    change(o);
    return fails_with(sentence, [&] { ImageClassifier model(o); });
  };
  EXPECT_TRUE(refused("set model.mixer.causal to false", [](auto& o) { o.mixer.causal = true; }));
  EXPECT_TRUE(
      refused("expected pictures of whole patches, got 9 x 6 pixels and patches of 4", [](auto& o) { o.patch = 4; }));
  EXPECT_TRUE(refused("expected at least two classes, got 1", [](auto& o) { o.classes = {"a"}; }));
  EXPECT_TRUE(refused("expected every class once", [](auto& o) { o.classes = {"a", "a"}; }));
  EXPECT_TRUE(refused("expected 1 channel (grey) or 3 (RGB), got 4", [](auto& o) { o.channels = 4; }));
  EXPECT_TRUE(refused("a positive deviation of channel 2", [](auto& o) { o.deviation[1] = 0; }));
  EXPECT_TRUE(refused("expected height from 1 to", [](auto& o) { o.height = 0; }));
  ImageClassifier model = random_classifier(small_classifier());
  EXPECT_TRUE(fails_with("expected pictures of shape [B, channels=3, height=6, width=9]",
                         [&] { model(at::zeros({1, 3, 6, 6})); }));
}

class ClassifierFolders : public testing::TemporaryFolder {};

TEST_F(ClassifierFolders, GiveBackTheSameModel) {
  ImageClassifier model = random_classifier(small_classifier());
  save_image_classifier(folder / "model", model);
  ImageClassifier loaded = load_image_classifier(folder / "model");
  EXPECT_EQ(to_json(loaded->options), to_json(model->options));
  EXPECT_TRUE(loaded->predict(random_pixels(3)).equal(model->predict(random_pixels(3))));
  EXPECT_TRUE(fails_with("\"model_type\": \"fem_language_model\"", [&] { load_language_model(folder / "model"); }));
  EXPECT_TRUE(fails_with("\"model_type\": \"fem_forecaster\"", [&] { load_forecaster(folder / "model"); }));
  std::string config = read(folder / "model" / "config.json");
  config.replace(config.find("\"patch\": 3"), 10, "\"patch\": 1");
  write(folder / "model" / "config.json", config);
  EXPECT_TRUE(fails_with("embedding.weight", [&] { load_image_classifier(folder / "model"); }));
}

}  // namespace
}  // namespace fem
