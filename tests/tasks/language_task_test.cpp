// Language models under the trainer: one step at a time.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>

#include "data/sampler.h"
#include "fem/io/model_folder.h"
#include "parallel/alone.h"
#include "support/error_text.h"
#include "tasks/small_language.h"
#include "train/trainer.h"

namespace fem {
namespace {

using testing::alone;
using testing::fails_with;

using Training = testing::SmallLanguage;

std::vector<at::Tensor> values_of(Task& task) {
  std::vector<at::Tensor> values;
  for (const TrainedParameter& parameter : task.parameters()) values.push_back(parameter.tensor.detach().clone());
  return values;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].equal(b[i])) return false;
  return a.size() == b.size();
}

TEST_F(Training, LearnsAndGoesOnFromACheckpointBitByBit) {
  options.model.mixer.dropout = 0.1;  // its random numbers must go on, too
  const auto first_task = language_task(options, train), second_task = language_task(options, train);
  Trainer whole(*first_task, train, alone());
  std::vector<double> losses;
  for (int i = 0; i < 6; ++i) {
    losses.push_back(whole.step().loss);
    if (i == 2) whole.save(folder / "checkpoint");
  }
  EXPECT_LT(losses.back(), losses.front() - 0.5);

  Trainer second(*second_task, train, alone());
  second.load(folder / "checkpoint");
  EXPECT_EQ(second.steps_done(), 3);
  for (int i = 3; i < 6; ++i) EXPECT_EQ(second.step().loss, losses[i]) << "step " << i;
  EXPECT_TRUE(same(values_of(*first_task), values_of(*second_task)));
}

TEST_F(Training, AccumulationAndRecomputationChangeNothingButRounding) {
  const auto losses_of = [&](const TrainOptions& o) {
    const auto task = language_task(options, o);
    Trainer trainer(*task, o, alone());
    std::vector<double> losses;
    for (int i = 0; i < 4; ++i) losses.push_back(trainer.step().loss);
    return losses;
  };
  const std::vector<double> whole = losses_of(train);
  TrainOptions parts = train, again = train;
  parts.micro_batch = 1;
  again.recompute = true;
  const std::vector<double> in_parts = losses_of(parts), recomputed = losses_of(again);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(in_parts[i], whole[i], 1e-4 * whole[i]) << "step " << i;
    EXPECT_EQ(recomputed[i], whole[i]) << "step " << i;
  }
}

TEST_F(Training, NamesTheTensorThatIsNotFiniteAndLeavesParametersAlone) {
  const auto task = language_task(options, train);
  Trainer trainer(*task, train, alone());
  trainer.step();
  {
    const at::NoGradGuard no_grad;
    for (const TrainedParameter& parameter : task->parameters())
      if (parameter.name == "blocks.1.mlp.up.weight") parameter.tensor.fill_(3e38);
  }
  const std::vector<at::Tensor> before = values_of(*task);
  EXPECT_TRUE(fails_with("step 2: the loss is", [&] { trainer.step(); }));
  EXPECT_TRUE(fails_with("the output of blocks.1.mlp", [&] { trainer.step(); }));
  EXPECT_TRUE(same(before, values_of(*task)));
}

TEST_F(Training, DecaysWhatTheModelDeclares) {
  options.model.mixer.prior_type = PriorType::kMamba;
  const auto task = language_task(options, train);
  std::set<std::string> kept;
  for (const TrainedParameter& parameter : task->parameters())
    if (!parameter.decayed && parameter.name.starts_with("blocks.1.")) kept.insert(parameter.name.substr(9));
  EXPECT_EQ(kept,
            (std::set<std::string>{"mixer_norm.weight", "mlp_norm.weight", "mixer.W_v.bias", "mixer.W_o.bias",
                                   "mixer.W_p.bias", "mixer.A_log", "mixer.D_diag", "mixer.W_lambda.bias",
                                   "mixer.W_gate.bias", "mixer._beta_param", "mixer.tdc.fwd.norm.weight",
                                   "mixer.tdc.fwd.norm.bias", "mixer.tdc.fwd.in_f.bias", "mixer.tdc.fwd.x_f.bias",
                                   "mixer.tdc.fwd.shortcut.bias", "mixer.tdc.fwd.ln.weight", "mixer.tdc.fwd.ln.bias"}));
}

TEST_F(Training, TheVocabularyIsTheTokenizersUnlessItIsNamed) {
  options.model.vocab_size = 100;
  EXPECT_TRUE(fails_with("expected model.vocab_size of at least 257, the tokenizer's, got 100",
                         [&] { language_task(options, train); }));
  options.model.vocab_size = 300;
  EXPECT_EQ(language_task(options, train)->recipe()["model"]["vocab_size"], 300);
  options.model.vocab_size = 0;
  EXPECT_EQ(language_task(options, train)->recipe()["model"]["vocab_size"], 257);
}

TEST_F(Training, WhatTheVocabularyHasBeyondTheTokenizersIsInNoSoftmax) {
  options.model.vocab_size = 300;
  const auto task = language_task(options, train);
  const Rows rows{.count = 2};
  const double before = task->loss(rows).sum.item<double>();
  for (const TrainedParameter& parameter : task->parameters()) {
    if (parameter.name != "embedding.weight") continue;
    const at::NoGradGuard no_grad;
    parameter.tensor.slice(0, 257).fill_(1e4);
  }
  EXPECT_EQ(task->loss(rows).sum.item<double>(), before);
}

// What a step must find: the model's loss and the norm of its gradients, in float32 or under torch's autocast.
Trainer::Step expected_step(Task& task, const PackedRows& rows, bool bfloat16, const std::filesystem::path& folder) {
  task.save(folder);  // the task's model in a module of its own
  LanguageModel model = load_language_model(folder);
  model->train();
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, bfloat16);
  const at::Tensor loss = model->surprise(rows.tokens, rows.targets, {.cu_seqlens = rows.cu_seqlens}).mean();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : torch::autograd::grad({loss}, model->parameters()))
    norms.push_back(gradient.norm());
  return {.loss = loss.item<double>(), .gradient_norm = at::stack(norms).norm().item<double>()};
}

TEST_F(Training, AStepInBfloat16IsOneUnderAutocastAndNearFloat32) {
  const Corpus corpus = prepare_corpus(options.corpus);
  const Sampler sampler(corpus.train, options.length, train.seed);
  train.precision = Precision::kBfloat16;
  const auto task = language_task(options, train);
  Trainer trainer(*task, train, alone());
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    const PackedRows rows = sampler.rows(i * train.batch, train.batch, 1);
    const Trainer::Step wide = expected_step(*task, rows, false, folder / "model");
    const Trainer::Step narrow = expected_step(*task, rows, true, folder / "model");
    const Trainer::Step step = trainer.step();
    EXPECT_NEAR(step.loss, narrow.loss, 1e-6 * narrow.loss);
    EXPECT_NEAR(step.gradient_norm, narrow.gradient_norm, 1e-5 * narrow.gradient_norm);
    EXPECT_NEAR(step.loss, wide.loss, 1e-3 * wide.loss);
    EXPECT_NEAR(step.gradient_norm, wide.gradient_norm, 0.02 * wide.gradient_norm);
    EXPECT_GT(std::abs(step.gradient_norm - wide.gradient_norm), 1e-5 * wide.gradient_norm) << "nothing is rounded";
  }
  for (const TrainedParameter& parameter : task->parameters()) EXPECT_EQ(parameter.tensor.scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace fem
