#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "evaluate/classification.h"
#include "fem/io/model_folder.h"
#include "io/recipe.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"
#include "tasks/images/augment.h"
#include "tasks/images/report.h"
#include "tasks/images/task.h"
#include "tasks/runs_of_a_task.h"
#include "train/trainer.h"

namespace fem {
namespace {

using nlohmann::json;
using testing::fails_with;

// Bright above or bright below, and noise.
ImageSet halves(int64_t train = 60, int64_t test = 20) {
  at::manual_seed(3);
  const auto part = [](int64_t count) {
    LabelledImages images{at::randint(60, {count, 1, 6, 6}, at::kByte), at::arange(count, at::kLong).remainder(2)};
    for (int64_t i = 0; i < count; ++i) images.pixels[i].slice(1, 3 * (i % 2), 3 * (i % 2) + 3).add_(120);
    return images;
  };
  ImageSet set{part(train), part(test), {"above", "below"}, "checksum", {}};
  return set;
}

class ImageTasks : public testing::TemporaryFolder {
 protected:
  static ImageOptions options(const json& data = json::object(), const json& model = json::object()) {
    json recipe{{"model", {{"n_embd", 16}, {"n_head", 2}, {"n_layer", 1}, {"mlp", "gelu"}, {"patch", 2}}},
                {"data", {{"folder", "pictures"}, {"validation", 0.2}}}};
    recipe["model"]["mixer"] = {{"conv_hidden", 4}, {"use_rope", false}, {"causal", false}};
    recipe.merge_patch({{"data", data}, {"model", model}});
    return image_options_from_json(recipe);
  }
  static TrainOptions training() {
    TrainOptions train;
    train.batch = 8;
    train.learning_rate = 1e-2;
    train.warmup_steps = 0;
    train.precision = Precision::kFloat32;
    return train;
  }
  static json everything() { return {{"crop", 1}, {"flip", true}, {"mixup", 0.4}, {"label_smoothing", 0.1}}; }
};

TEST_F(ImageTasks, LearnWhatIsThere) {
  const auto own = image_task(options({{"flip", true}}), halves(), training());
  Trainer trainer(*own, training(), testing::alone());
  for (int i = 0; i < 60; ++i) trainer.step();
  EXPECT_EQ(value_of(trainer.validate(true), "test_accuracy"), 1.0);
}

TEST_F(ImageTasks, MeasuresAreThoseOfAllPictures) {
  const ImageOptions of = options();
  const auto own = image_task(of, halves(), training());
  own->save(folder / "model");
  ImageClassifier model = load_image_classifier(folder / "model");
  Trainer trainer(*own, training(), testing::alone());
  const NamedValues end = trainer.validate(/*whole=*/true), between = trainer.validate(/*whole=*/false);
  const ImageData data = image_data(of.data, halves());
  EXPECT_EQ(data.train.count(), 48);
  for (const auto& [images, loss, accuracy] :
       {std::tuple{data.validation, "loss", "accuracy"}, {data.test, "test_loss", "test_accuracy"}}) {
    const at::Tensor probabilities = model->predict(images.pixels);
    EXPECT_NEAR(value_of(end, loss), -probabilities.gather(1, images.labels.unsqueeze(1)).log().mean().item<double>(),
                1e-5);
    EXPECT_NEAR(value_of(end, accuracy),
                probabilities.argmax(1).eq(images.labels).to(at::kDouble).mean().item<double>(), 1e-9);
  }
  ASSERT_EQ(between.size(), 2);  // the test is not looked at before the end
  EXPECT_EQ(between[0], end[0]);
}

TEST_F(ImageTasks, PartsShareNoPicture) {
  ImageSet set = halves(100, 0);
  set.train.labels = at::arange(100, at::kLong);
  const ImageData data = image_data(options().data, set);
  EXPECT_EQ(data.test.count(), 10);
  EXPECT_EQ(data.validation.count(), 20);
  const at::Tensor all = at::cat({data.train.labels, data.validation.labels, data.test.labels});
  EXPECT_TRUE(std::get<0>(all.sort()).equal(at::arange(100, at::kLong)));
}

TEST_F(ImageTasks, StandardiseByTheTrainingPictures) {
  const ImageOptions of = options();
  const ImageClassifierOptions model = classifier_for(of, halves());
  const at::Tensor train = image_data(of.data, halves()).train.pixels.to(at::kDouble) / 255;
  EXPECT_NEAR(model.mean[0], train.mean().item<double>(), 1e-6);
  EXPECT_NEAR(model.deviation[0], train.std(/*unbiased=*/false).item<double>(), 1e-6);
}

TEST_F(ImageTasks, RowsAreAPureFunctionOfSeedAndNumber) {
  const LabelledImages images = halves().train;
  const ImageDataOptions of = options(everything()).data;
  const EpochOrder order(images.count(), 7), other(images.count(), 8);
  const ImageRows together = augmented_rows(images, 2, of, order, {100, 30});
  for (const int64_t row : {0, 13, 29}) {
    const ImageRows alone = augmented_rows(images, 2, of, EpochOrder(images.count(), 7), {100 + row, 1});
    EXPECT_TRUE(alone.pixels[0].equal(together.pixels[row]));
    EXPECT_TRUE(alone.targets[0].equal(together.targets[row]));
  }
  EXPECT_TRUE(augmented_rows(images, 2, of, order, {101, 3, 9}).pixels[1].equal(together.pixels[10]));
  EXPECT_FALSE(augmented_rows(images, 2, of, other, {100, 30}).pixels.equal(together.pixels));
  EXPECT_TRUE(together.targets.sum(1).allclose(at::ones({30})));
  EXPECT_GE(together.targets.min().item<float>(), 0.05F - 1e-6F);
}

TEST_F(ImageTasks, VariedPicturesAreMovedAndMirroredPictures) {
  const at::Tensor picture = at::arange(1, 26, at::kByte).view({1, 5, 5});
  const ImageDataOptions of = options({{"crop", 2}, {"flip", true}}).data;
  const at::Tensor padded = at::constant_pad_nd(picture, {2, 2, 2, 2});
  std::set<std::tuple<int, int, int>> seen;
  for (uint64_t number = 0; number < 1000; ++number) {
    const at::Tensor made = varied(picture, of, number);
    for (int top = 0; top < 5; ++top)
      for (int left = 0; left < 5; ++left)
        for (int mirrored = 0; mirrored < 2; ++mirrored) {
          const at::Tensor moved = padded.slice(1, top, top + 5).slice(2, left, left + 5);
          if (made.equal(mirrored ? moved.flip(2) : moved)) seen.insert({top, left, mirrored});
        }
  }
  EXPECT_EQ(seen.size(), 50);  // all of them, and nothing else would have been found
  EXPECT_TRUE(varied(picture, options().data, 5).equal(picture));
}

TEST_F(ImageTasks, MixupMixesPicturesAsItMixesTargets) {
  // Pictures that are all 0 or all 200: what a row is a mixture of can be read from it.
  LabelledImages images{at::zeros({40, 1, 2, 2}, at::kByte), at::arange(40, at::kLong).remainder(2)};
  images.pixels.index_put_({images.labels == 1}, at::full({}, 200, at::kByte));
  const ImageRows rows = augmented_rows(images, 2, options({{"mixup", 0.8}}).data, EpochOrder(40, 1), {0, 400});
  const at::Tensor share = rows.pixels.mean({1, 2, 3}) / 200;
  EXPECT_TRUE(share.allclose(rows.targets.select(1, 1), 1e-4, 1e-5));
  const at::Tensor mixed = share.masked_select((share > 1e-6).logical_and(share < 1 - 1e-6));
  EXPECT_GT(mixed.numel(), 120);  // half of the partners are of the other class
  // Beta(0.8, 0.8) has mean 1/2 and variance 1 / (4 (2 * 0.8 + 1)); five standard errors of some 200.
  EXPECT_NEAR(mixed.mean().item<double>(), 0.5, 0.12);
  EXPECT_NEAR(mixed.var().item<double>(), 0.0962, 0.03);
}

TEST_F(ImageTasks, EveryEpochReadsEveryPictureOnce) {
  const auto own = image_task(options(), halves(), training());  // 48 pictures
  double once = 0, twice = 0;
  for (int64_t row = 0; row < 48; ++row) once += own->loss({row, 1}).sum.item<double>();
  for (int64_t row = 48; row < 96; ++row) twice += own->loss({row, 1}).sum.item<double>();
  EXPECT_NEAR(once, twice, 1e-4 * once);
  EXPECT_EQ(training_for(options(), halves(), 10, 4),
            (json{{"steps", 20}, {"warmup_steps", 1}, {"validate_every", 5}, {"checkpoint_every", 5}}));
}

TEST_F(ImageTasks, TwoProcessesMeasureAndLearnAsOne) {
  testing::expect_two_processes_do_as_one([] { return image_task(options(everything()), halves(), training()); },
                                          training());
}

TEST_F(ImageTasks, InterruptedAndResumedEqualsUninterruptedBitForBit) {
  const ImageOptions of = options(everything(), {{"dropout", 0.2}});
  testing::expect_resumed_bit_for_bit([&] { return image_task(of, halves(), training()); }, training(), folder);
}

TEST_F(ImageTasks, GoOnOnlyWithTheirPictures) {
  const auto before = image_task(options(), halves(), training());
  Trainer first(*before, training(), testing::alone());
  first.step();
  first.save(folder / "run");
  ImageSet other = halves();
  other.checksum = "another";
  const auto after = image_task(options(), other, training());
  Trainer second(*after, training(), testing::alone());
  EXPECT_TRUE(fails_with("pictures\" changed", [&] { second.load(folder / "run"); }));
}

TEST_F(ImageTasks, AreRefusedWithASentence) {
  EXPECT_TRUE(fails_with("model.classes follows from [data]; leave it out",
                         [] { options(json::object(), {{"classes", {"a"}}}); }));
  EXPECT_TRUE(fails_with("name it with --data DIR", [] { images_of({}); }));
  EXPECT_TRUE(fails_with("expected data.mixup from 0, got -1", [] { images_of(options({{"mixup", -1}}).data); }));
  EXPECT_TRUE(fails_with("expected enough pictures", [] { image_data(options().data, halves(2, 1)); }));
}

int64_t parameters_of(const std::string& recipe, int64_t side, int64_t channels, int64_t classes) {
  ImageClassifierOptions model = image_options_from_json([&] {
                                   json sections = load_recipe(find_recipe(recipe));
                                   sections.erase("train");
                                   return sections;
                                 }())
                                     .model;
  model.height = model.width = side;
  model.channels = channels;
  for (int64_t i = 0; i < classes; ++i) model.classes.push_back(std::to_string(i));
  model.mean.assign(static_cast<size_t>(channels), 0.5);
  model.deviation = model.mean;
  return parameter_count(image_classifier_parameters(with_widths(model)));
}

TEST(ImageRecipes, HaveThePublishedNumbersOfParameters) {
  for (const char* name : {"images/deit-tiny", "images/deit-tiny-fem-softmax"})
    EXPECT_NEAR(static_cast<double>(parameters_of(name, 224, 3, 1000)), 5.7e6, 0.03 * 5.7e6) << name;
  for (const char* name : {"images/deit-small", "images/deit-small-fem-softmax"})
    EXPECT_NEAR(static_cast<double>(parameters_of(name, 224, 3, 1000)), 22e6, 0.03 * 22e6) << name;
}

TEST(ImageRecipes, OfFashionAreEquallyLarge) {
  const auto plain = static_cast<double>(parameters_of("images/fashion-softmax", 28, 1, 10));
  for (const char* name : {"images/fashion-fem-softmax", "images/fashion-gla", "images/fashion-fem-gla"})
    EXPECT_NEAR(static_cast<double>(parameters_of(name, 28, 1, 10)), plain, 0.005 * plain) << name;
}

TEST(ClassificationScores, AreCountedClassByClass) {
  ClassificationScore score{at::tensor({8, 2, 0, 1, 5, 4, 0, 0, 0}, at::kLong).view({3, 3}), 10};
  EXPECT_EQ(score.pictures(), 20);
  EXPECT_EQ(score.accuracy(), 0.65);
  EXPECT_EQ(score.loss(), 0.5);
  const std::string table = class_table(score, {"cat", "dog", "cow"});
  EXPECT_NE(table.find("dog          10  50.0 %         71.4 %          cow"), std::string::npos) << table;
  EXPECT_NE(table.find("cow           0       -          0.0 %            -"), std::string::npos) << table;
}

}  // namespace
}  // namespace fem
