// Looking into the layers of a model: what the inspector tells of a layer is what its mixer added.
#include "fem/inspect.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "models/backbone.h"
#include "models/small_models.h"
#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;
using testing::fails_with;
using testing::random_model;

at::Tensor some_tokens() { return at::arange(18).view({2, 9}).remainder(7); }

// What the mixer of a layer adds to the stream, by the trace and by what was inspected.
void expect_added(LanguageModel& model, const Trace& made, int64_t layer, const std::string& output) {
  const auto of = [](int64_t block, const char* what) { return "blocks." + std::to_string(block) + what; };
  const at::Tensor before = found(made, layer == 0 ? "embedding" : of(layer - 1, ".mlp"));
  const at::Tensor added = found(made, of(layer, ".mixer")) - before;
  const Inspection i = ModelInspector(*model, model->options, made).layer(layer, {1, 4, 8});
  const auto named = model->named_parameters();
  const std::string name = of(layer, ".mixer.") + output;
  const at::Tensor again =
      at::matmul((i.gated * i.outer_gate).flatten(2), named[name + ".weight"].t()) + named[name + ".bias"];
  EXPECT_TRUE(close(again, added.index_select(1, at::tensor({1, 4, 8})), testing::kFloat64));
}

TEST(ModelInspectors, TellWhatEveryLayerAdded) {
  const at::NoGradGuard no_gradients;
  for (const auto& [choice, output] : {std::pair{testing::MixerChoice{BlockMixer::kFem, PriorType::kSoftmax}, "W_o"},
                                       {testing::MixerChoice{BlockMixer::kFem, PriorType::kGla}, "W_o"},
                                       {testing::MixerChoice{BlockMixer::kAttention, PriorType::kSoftmax}, "output"}}) {
    LanguageModel model = random_model(choice, 7);
    model->to(at::kDouble);
    const Trace made = model->trace(some_tokens());
    for (const int64_t layer : {0, 1}) expect_added(model, made, layer, output);
    EXPECT_EQ(ModelInspector(*model, model->options, made).tokens(), 9);
  }
}

TEST(ModelInspectors, OfAttentionAndItsNewtonStepsAreOfRankOneWithAnEnergy) {
  const at::NoGradGuard no_gradients;
  for (const BlockMixer mixer : {BlockMixer::kAttention, BlockMixer::kNewton, BlockMixer::kNewtonLight}) {
    LanguageModel model = random_model({mixer, PriorType::kSoftmax}, 7);
    const Inspection i = ModelInspector(*model, model->options, model->trace(some_tokens())).layer(1, {0, 8});
    EXPECT_TRUE(at::allclose(i.rank, at::ones_like(i.rank), 0, 1e-5));
    ASSERT_TRUE(i.energy.defined());
    EXPECT_TRUE(i.energy.isfinite().all().item<bool>() && i.energy_gradient.gt(0).all().item<bool>());
  }
}

TEST(ModelInspectors, RefuseWhatSelectsNothing) {
  const at::NoGradGuard no_gradients;
  LanguageModel model = random_model({BlockMixer::kDeltaNet, PriorType::kSoftmax}, 7);
  const ModelInspector inspector(*model, model->options, model->trace(some_tokens()));
  EXPECT_TRUE(fails_with("block_mixer = \"delta_net\" has no selection prior", [&] { inspector.layer(0, {0}); }));
  EXPECT_TRUE(fails_with("expected a layer from 0 to 1, got 2", [&] { inspector.layer(2, {0}); }));
  EXPECT_TRUE(fails_with("mixer_norm", [&] { ModelInspector(*model, model->options, Trace()); }));
}

}  // namespace
}  // namespace fem
