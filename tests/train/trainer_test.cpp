#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "fem/io/model_folder.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/run.h"

namespace fem {
namespace {

using testing::fails_with;

class Training : public testing::TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    std::filesystem::create_directories(folder / "text");
    for (int i = 0; i < 6; ++i) {
      std::string text;
      for (int line = 0; line < 20; ++line)
        text += "line " + std::to_string(line * i) + " of file " + std::to_string(i) + "\n";
      write(folder / "text" / (std::to_string(i) + ".txt"), text);
    }
    config.data.train = {(folder / "text").string()};
    config.data.cache = folder / "cache";
    config.model.n_embd = 32;
    config.model.n_head = 2;
    config.model.n_layer = 2;
    config.model.mlp_width = 48;
    config.model.mixer.conv_hidden = 8;
    config.train.steps = 6;
    config.train.batch = 4;
    config.train.length = 32;
    config.train.warmup_steps = 2;
    config.train.learning_rate = 1e-2;
    config.train.precision = Precision::kFloat32;
    config.train.checkpoint_every = 2;
    config.train.validate_every = 3;
    config.train.log_every = 1;
  }

  std::shared_ptr<ProcessGroup> alone() { return ProcessGroup::connect({}, std::chrono::seconds(1)); }

  static std::vector<at::Tensor> values_of(Trainer& trainer) {
    std::vector<at::Tensor> values;
    for (const at::Tensor& parameter : trainer.model()->parameters()) values.push_back(parameter.detach().clone());
    return values;
  }

  static bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (!a[i].equal(b[i])) return false;
    return a.size() == b.size();
  }

  TrainConfig config;
};

TEST_F(Training, LearnsAndGoesOnFromACheckpointBitByBit) {
  const Corpus corpus = prepare_corpus(config.data);
  config.model.mixer.dropout = 0.1;  // its random numbers must go on, too
  Trainer whole(config, corpus, alone());
  std::vector<double> losses;
  for (int i = 0; i < 6; ++i) {
    losses.push_back(whole.step().loss);
    if (i == 2) whole.save(folder / "checkpoint");
  }
  EXPECT_LT(losses.back(), losses.front() - 0.5);

  Trainer second(config, corpus, alone());
  second.load(folder / "checkpoint");
  EXPECT_EQ(second.steps_done(), 3);
  for (int i = 3; i < 6; ++i) EXPECT_EQ(second.step().loss, losses[i]) << "step " << i;
  EXPECT_TRUE(same(values_of(whole), values_of(second)));
}

TEST_F(Training, AccumulationAndRecomputationChangeNothingButRounding) {
  const Corpus corpus = prepare_corpus(config.data);
  const auto losses_of = [&](const TrainConfig& c) {
    Trainer trainer(c, corpus, alone());
    std::vector<double> losses;
    for (int i = 0; i < 4; ++i) losses.push_back(trainer.step().loss);
    return losses;
  };
  const std::vector<double> whole = losses_of(config);
  TrainConfig parts = config, again = config;
  parts.train.micro_batch = 1;
  again.train.recompute = true;
  const std::vector<double> in_parts = losses_of(parts), recomputed = losses_of(again);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(in_parts[i], whole[i], 1e-4 * whole[i]) << "step " << i;
    EXPECT_EQ(recomputed[i], whole[i]) << "step " << i;
  }
}

TEST_F(Training, NamesTheTensorThatIsNotFiniteAndLeavesParametersAlone) {
  const Corpus corpus = prepare_corpus(config.data);
  Trainer trainer(config, corpus, alone());
  trainer.step();
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : trainer.model()->named_parameters())
      if (parameter.key() == "blocks.1.mlp.up.weight") parameter->fill_(3e38);
  }
  const std::vector<at::Tensor> before = values_of(trainer);
  EXPECT_TRUE(fails_with("step 2: the loss is", [&] { trainer.step(); }));
  EXPECT_TRUE(fails_with("the output of blocks.1.mlp", [&] { trainer.step(); }));
  EXPECT_TRUE(same(before, values_of(trainer)));
}

TEST_F(Training, AWholeRunIsTheSameInOneOrTwoParts) {
  std::ostringstream log;
  const TrainResult whole = train(config, folder / "whole", false, log);
  EXPECT_TRUE(whole.finished);
  EXPECT_NE(log.str().find("parameters"), std::string::npos);

  // As after a kill: the first checkpoint alone is there, and metrics of steps that it does not know.
  std::filesystem::copy(folder / "whole", folder / "parts", std::filesystem::copy_options::recursive);
  config.train.keep_checkpoints = 5;
  train(config, folder / "long", false, log);
  std::filesystem::remove_all(folder / "parts" / "checkpoints");
  std::filesystem::create_directories(folder / "parts" / "checkpoints");
  std::filesystem::copy(folder / "long" / "checkpoints" / "step-00000002",
                        folder / "parts" / "checkpoints" / "step-00000002", std::filesystem::copy_options::recursive);
  const TrainResult parts = train(config, folder / "parts", true, log);
  EXPECT_EQ(parts.validation.nats, whole.validation.nats);
  EXPECT_EQ(read(model_folder(folder / "parts") / "model.safetensors"),
            read(model_folder(folder / "whole") / "model.safetensors"));
  const auto steps_of = [&](const char* run) {
    std::vector<std::pair<std::string, int64_t>> steps;
    for (const Json& line : read_jsonl(metrics_path(folder / run))) steps.emplace_back(line["kind"], line["step"]);
    return steps;
  };
  EXPECT_EQ(steps_of("parts"), steps_of("whole"));
}

TEST_F(Training, RefusesToOverwriteARunAndToMixTwo) {
  std::ostringstream log;
  config.train.steps = 2;
  train(config, folder / "run", false, log);
  EXPECT_TRUE(fails_with("already holds a run (step 2)", [&] { train(config, folder / "run", false, log); }));
  config.train.learning_rate = 1e-3;
  EXPECT_TRUE(
      fails_with("train/learning_rate was 0.01 and is now 0.001", [&] { train(config, folder / "run", true, log); }));
  config.train.learning_rate = 1e-2;
  config.data.tokenizer = "sentencepiece:280";
  EXPECT_TRUE(fails_with("data/tokenizer was", [&] { train(config, folder / "run", true, log); }));
}

// What a step must find: the model's loss and the norm of its gradients, in float32 or under torch's autocast.
Trainer::Step expected_step(Trainer& trainer, const Corpus& corpus, bool bfloat16) {
  const TrainOptions& o = trainer.config().train;
  const PackedRows rows = Sampler(corpus.train, o.length, o.seed).rows(trainer.steps_done() * o.batch, o.batch, 1);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, bfloat16);
  const at::Tensor loss = trainer.model()->surprise(rows.tokens, rows.targets, {.cu_seqlens = rows.cu_seqlens}).mean();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : torch::autograd::grad({loss}, trainer.model()->parameters()))
    norms.push_back(gradient.norm());
  return {.loss = loss.item<double>(), .gradient_norm = at::stack(norms).norm().item<double>()};
}

TEST_F(Training, AStepInBfloat16IsOneUnderAutocastAndNearFloat32) {
  const Corpus corpus = prepare_corpus(config.data);
  config.train.precision = Precision::kBfloat16;
  Trainer trainer(config, corpus, alone());
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    const Trainer::Step wide = expected_step(trainer, corpus, false), narrow = expected_step(trainer, corpus, true);
    const Trainer::Step step = trainer.step();
    EXPECT_NEAR(step.loss, narrow.loss, 1e-6 * narrow.loss);
    EXPECT_NEAR(step.gradient_norm, narrow.gradient_norm, 1e-5 * narrow.gradient_norm);
    EXPECT_NEAR(step.loss, wide.loss, 1e-3 * wide.loss);
    EXPECT_NEAR(step.gradient_norm, wide.gradient_norm, 0.02 * wide.gradient_norm);
    EXPECT_GT(std::abs(step.gradient_norm - wide.gradient_norm), 1e-5 * wide.gradient_norm) << "nothing is rounded";
  }
  for (const at::Tensor& parameter : trainer.model()->parameters()) EXPECT_EQ(parameter.scalar_type(), at::kFloat);
}

TEST(TrainConfigs, TheLearningRateWarmsUpAndFallsAsACosine) {
  TrainOptions options;
  options.steps = 110;
  options.warmup_steps = 10;
  options.learning_rate = 1.0;
  options.final_learning_rate = 0.2;
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 10), 1.0);
  EXPECT_NEAR(learning_rate_at(options, 60), 0.6, 1e-12);
  EXPECT_NEAR(learning_rate_at(options, 110), 0.2, 1e-12);
}

TEST(TrainConfigs, UnknownAndImpossibleValuesAreRefused) {
  using nlohmann::json;
  const auto reading = [](const json& in) { return [in] { train_config_from_json(in); }; };
  EXPECT_TRUE(fails_with("recipe: unknown field \"trian\"", reading({{"trian", {{"steps", 1}}}})));
  EXPECT_TRUE(fails_with("train: unknown field \"step\"", reading({{"train", {{"step", 1}}}})));
  EXPECT_TRUE(fails_with("expected steps to be an integer", reading({{"train", {{"steps", "many"}}}})));
  EXPECT_TRUE(fails_with("expected batch of at least 1", reading({{"train", {{"batch", 0}}}})));
  EXPECT_TRUE(fails_with("mixer.n_embd follows the model's", reading({{"model", {{"mixer", {{"n_embd", 8}}}}}})));
  EXPECT_TRUE(fails_with("unknown field \"prior\"", reading({{"model", {{"mixer", {{"prior", "gla"}}}}}})));
}

}  // namespace
}  // namespace fem
