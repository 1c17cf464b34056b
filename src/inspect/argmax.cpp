// The channel-wise argmax task: its one read as a layer whose value and output are the identity.
#include <ATen/ATen.h>

#include "fem/io/model_folder.h"
#include "inspect/subject.h"
#include "mixer/parameters.h"
#include "nn/parameters.h"
#include "tasks/argmax/examples.h"
#include "tasks/argmax/model.h"
#include "tasks/argmax/task.h"
#include "tasks/parameter_file.h"
#include "train/run_folder.h"
#include "util/check.h"

namespace fem {
namespace {

MixerOptions layer_of(const ArgmaxOptions& options) {
  MixerOptions layer = argmax_layer(options);
  layer.use_outer_gate = false;
  layer.use_lse = layer.use_temperature = options.mixer == ArgmaxMixer::kFem;
  return layer;
}

class ArgmaxSubject final : public Subject {
 public:
  ArgmaxSubject(const SubjectOptions& options, const nlohmann::json& recipe)
      : name_(options.model.string()), task_(argmax_options_from_json(recipe)) {
    const ArgmaxModel read(task_, /*seed=*/1);
    if (!options.fresh)
      load_parameters(model_folder(options.model), "argmax", {read.parameters().begin(), read.parameters().end()});
    backbone_ = {.n_embd = task_.dim, .n_head = task_.heads, .n_layer = 1, .mlp_width = 1, .mixer = layer_of(task_)};
    visit_parameters(backbone_.mixer, weights_, [&](const ParameterSpec& spec, at::Tensor& slot) {
      const auto own = read.parameters().find(spec.name);
      at::Tensor value = at::zeros(spec.shape, at::kDouble);
      if (own != read.parameters().end())
        value = own->second.detach().to(at::kDouble);
      else if (spec.shape.size() == 2)
        value = at::eye(spec.shape[0], spec.shape[1], at::kDouble);  // W_v and W_o
      slot = register_dotted(module_, "blocks.0.mixer." + spec.name, value);
    });
    constexpr int64_t kSeed = 0;
    examples_ = argmax_examples(task_, kSeed, {.first = task_.train_examples, .count = options.rows});
  }

  const BackboneOptions& options() const override { return backbone_; }
  torch::nn::Module& model() override { return module_; }
  int64_t batches() const override { return examples_.value.size(0); }
  const char* unit_of_loss() const override { return "squared error"; }

  Trace trace(int64_t batch) override { return {{"blocks.0.mixer_norm", example(batch)}}; }

  SummedLoss loss(int64_t batch) override {
    const at::Tensor said = mix(example(batch), weights_, backbone_.mixer).select(1, -1);
    return {at::mse_loss(said, examples_.target.slice(0, batch, batch + 1).to(at::kDouble)).item<double>(), 1};
  }

  Shown shown() override {
    Shown shown{.trace = trace(0), .kind = "series", .title = name_};
    for (int64_t i = 0; i < task_.length; ++i) shown.tokens.push_back(std::to_string(i));
    shown.notes.push_back("The model learns what the last token reads; the others read by the same weights.");
    return shown;
  }

 private:
  at::Tensor example(int64_t batch) const { return examples_.value.slice(0, batch, batch + 1).to(at::kDouble); }

  std::string name_;
  ArgmaxOptions task_;
  BackboneOptions backbone_;
  torch::nn::Module module_;
  MixerWeights weights_;
  ArgmaxBatch examples_;
};

}  // namespace

std::unique_ptr<Subject> argmax_subject(const SubjectOptions& options) {
  const nlohmann::json recipe = recipe_of_run(options.model);
  if (!recipe.is_object() || recipe.value("task", nlohmann::json()) != argmax_entry().name) return nullptr;
  return std::make_unique<ArgmaxSubject>(options, recipe);
}

}  // namespace fem
