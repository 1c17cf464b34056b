#include <ATen/ATen.h>

#include "fem/io/safetensors.h"
#include "io/temporary_folder.h"
#include "parallel/alone.h"
#include "parallel/ranks.h"
#include "support/error_text.h"
#include "tasks/argmax/examples.h"
#include "tasks/argmax/model.h"
#include "tasks/argmax/task.h"
#include "train/trainer.h"

namespace fem {
namespace {

using testing::alone;
using Argmax = testing::TemporaryFolder;
using testing::fails_with;

TrainOptions constant_rate(int64_t batch = 64) {
  TrainOptions options;
  options.batch = batch;
  options.learning_rate = 1e-2;
  options.final_learning_rate = 1;
  options.warmup_steps = 0;
  options.beta2 = 0.999;
  options.weight_decay = 0.01;
  options.clip = 0;
  options.precision = Precision::kFloat32;
  return options;
}

TEST(ArgmaxModel, BothMixersStartFromTheSamePrior) {
  ArgmaxOptions options{.dim = 8, .heads = 2};
  const ArgmaxModel fem(options, 0);
  options.mixer = ArgmaxMixer::kMean;
  const ArgmaxModel mean(options, 0);
  for (const auto& [name, parameter] : mean.parameters()) EXPECT_TRUE(at::equal(parameter, fem.parameters().at(name)));
  EXPECT_EQ(mean.parameter_count(), 2 * (8 * 8 + 8));
  EXPECT_EQ(fem.parameter_count(), 3 * (8 * 8 + 8) + 8);
}

TEST_F(Argmax, TrainingLowersTheLoss) {
  const auto task = argmax_task({.dim = 16, .heads = 2, .length = 16, .validation_examples = 64}, constant_rate());
  Trainer trainer(*task, constant_rate(), alone());
  const double before = value_of(trainer.validate(true), "loss");
  for (int i = 0; i < 100; ++i) trainer.step();
  EXPECT_LT(value_of(trainer.validate(true), "loss"), before / 1.5);
}

TEST_F(Argmax, ALossAndMeasuresAreThoseOfTheExamples) {
  const ArgmaxOptions options{.dim = 16, .heads = 2, .length = 20, .validation_examples = 40};
  const TrainOptions train = constant_rate(16);
  const ArgmaxModel model(options, train.seed);
  const ArgmaxBatch first = argmax_examples(options, train.seed, {0, 16});
  const auto task = argmax_task(options, train);
  Trainer trainer(*task, train, alone());
  const NamedValues measures = trainer.validate(true);
  const ArgmaxBatch validation = argmax_examples(options, train.seed, {options.train_examples, 40});
  const at::Tensor prediction = model.forward(validation.value);
  EXPECT_NEAR(value_of(measures, "loss"), at::mse_loss(prediction, validation.target).item<double>(), 1e-6);
  EXPECT_DOUBLE_EQ(value_of(measures, "accuracy"), channels_found(prediction, validation) / (40.0 * 16));
  EXPECT_NEAR(trainer.step().loss, at::mse_loss(model.forward(first.value), first.target).item<double>(), 1e-6);
}

TEST_F(Argmax, TwoProcessesMeasureAndLearnAsOne) {
  const ArgmaxOptions options{.dim = 16, .heads = 2, .length = 20, .validation_examples = 50};
  const auto figures = [&](const std::shared_ptr<ProcessGroup>& group) {
    const auto task = argmax_task(options, constant_rate(16));
    Trainer trainer(*task, constant_rate(16), group);
    std::vector<double> found;
    for (int i = 0; i < 3; ++i) found.push_back(trainer.step().loss);
    const NamedValues measures = trainer.validate(true);
    found.insert(found.end(), {value_of(measures, "loss"), value_of(measures, "accuracy")});
    return found;
  };
  const std::vector<double> one = figures(alone());
  testing::run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    const std::vector<double> two = figures(group);
    for (size_t i = 0; i < one.size(); ++i)
      if (std::abs(two[i] - one[i]) > 1e-4 * std::abs(one[i]))
        throw std::runtime_error("figure " + std::to_string(i) + ": " + std::to_string(two[i]) + " instead of " +
                                 std::to_string(one[i]));
  });
}

TEST_F(Argmax, InterruptedAndResumedEqualsUninterruptedBitForBit) {
  const TrainOptions train = constant_rate(16);
  for (const ArgmaxMixer mixer : {ArgmaxMixer::kFem, ArgmaxMixer::kMean}) {
    const ArgmaxOptions options{.mixer = mixer, .dim = 16, .heads = 2, .length = 20, .validation_examples = 32};
    const auto task_of_whole = argmax_task(options, train), of_first = argmax_task(options, train),
               of_second = argmax_task(options, train);
    Trainer whole(*task_of_whole, train, alone()), first(*of_first, train, alone()), second(*of_second, train, alone());
    for (int i = 0; i < 12; ++i) whole.step();
    for (int i = 0; i < 5; ++i) first.step();
    first.seconds = 1.5;
    first.save(folder / "run");
    second.load(folder / "run");
    EXPECT_EQ(second.seconds, 1.5);
    EXPECT_EQ(second.steps_done(), 5);
    for (int i = 0; i < 7; ++i) second.step();

    whole.save(folder / "whole");
    second.save(folder / "second");
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const auto a = load_safetensors(folder / "whole" / file).tensors;
      const auto b = load_safetensors(folder / "second" / file).tensors;
      ASSERT_EQ(a.size(), b.size());
      for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
    }
    EXPECT_EQ(whole.validate(true), second.validate(true));
  }
}

TEST_F(Argmax, CheckpointOfAnotherConfigurationIsRefused) {
  const auto save = [&](int64_t dim, const TrainOptions& train) {
    const auto task = argmax_task({.dim = dim, .heads = 2}, train);
    Trainer(*task, train, alone()).save(folder / "run");
  };
  const auto load = [&](int64_t dim) {
    return [this, dim] {
      const auto task = argmax_task({.dim = dim, .heads = 2}, constant_rate());
      Trainer(*task, constant_rate(), alone()).load(folder / "run");
    };
  };
  save(8, constant_rate());
  EXPECT_TRUE(fails_with("model/dim was 8 and is now 16", load(16)));
  EXPECT_TRUE(fails_with("another run with another --out", load(16)));
  Safetensors damaged = load_safetensors(folder / "run" / "model.safetensors");
  damaged.tensors.erase("W_k.weight");
  save_safetensors(folder / "run" / "model.safetensors", damaged);
  EXPECT_TRUE(fails_with("argmax: expected a tensor 'W_k.weight' of shape [8, 8] in ", load(8)));
}

TEST(ArgmaxTask, ExamplesThatCannotBeToldApartAreRefused) {
  TrainOptions train = constant_rate();
  train.seed = kArgmaxSeeds;
  EXPECT_TRUE(fails_with("expected a seed below 16,384, got 16384", [&] { argmax_task({}, train); }));
  EXPECT_TRUE(fails_with("expected at least the 64 training examples of a batch, got 60",
                         [] { argmax_task({.train_examples = 60}, constant_rate()); }));
  EXPECT_TRUE(fails_with("expected at most 262,144 examples of both kinds",
                         [] { check(ArgmaxOptions{.train_examples = 262144}); }));
}

}  // namespace
}  // namespace fem
