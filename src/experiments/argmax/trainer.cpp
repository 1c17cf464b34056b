#include "experiments/argmax/trainer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/argmax/task.h"
#include "fem/io/safetensors.h"
#include "util/check.h"

namespace fem {
namespace {

std::vector<std::pair<std::string, at::Tensor>> listed(const NamedTensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

}  // namespace

ArgmaxTrainer::ArgmaxTrainer(const ArgmaxConfig& config)
    : config_(config),
      model_(config),
      optimizer_(listed(model_.parameters()), {.learning_rate = config.learning_rate}) {}

double ArgmaxTrainer::step() {
  const ArgmaxBatch batch = argmax_train_batch(config_, steps_done());
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : model_.parameters()) parameters.push_back(parameter);
  const at::Tensor loss = at::mse_loss(model_.forward(batch.value), batch.target);
  optimizer_.step(torch::autograd::grad({loss}, parameters));
  return loss.item<double>();
}

ArgmaxPoint ArgmaxTrainer::evaluate() const {
  const at::NoGradGuard no_grad;
  ArgmaxPoint point{.step = steps_done()};
  for (int64_t done = 0; done < config_.validation_examples; done += config_.batch) {
    const int64_t count = std::min(config_.batch, config_.validation_examples - done);
    const ArgmaxBatch batch = argmax_examples(config_, config_.train_examples + done, count);
    const at::Tensor prediction = model_.forward(batch.value);
    const double share = static_cast<double>(count) / config_.validation_examples;
    point.validation_loss += share * at::mse_loss(prediction, batch.target).item<double>();
    point.accuracy += share * index_accuracy(prediction, batch);
  }
  return point;
}

void ArgmaxTrainer::save(const std::filesystem::path& path, double seconds) const {
  Safetensors content;
  for (const auto& [name, tensor] : model_.parameters()) content.tensors["model." + name] = tensor.detach();
  for (const auto& [name, tensor] : optimizer_.state()) content.tensors["adamw." + name] = tensor;
  content.metadata["config"] = to_json(config_).dump();
  content.metadata["seconds"] = std::to_string(seconds);
  std::filesystem::create_directories(path.parent_path());
  save_safetensors(path, content);
}

double ArgmaxTrainer::load(const std::filesystem::path& path) {
  const Safetensors content = load_safetensors(path);
  FEM_CHECK(content.metadata.count("config") && content.metadata.at("config") == to_json(config_).dump(),
            "argmax: expected ", path.string(),
            " to be a checkpoint of this configuration, but it is of another; choose another --out, or drop ",
            "--resume to start afresh");
  NamedTensors optimizer;
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : content.tensors)
    if (name.starts_with("adamw.")) optimizer[name.substr(6)] = tensor;
  for (const auto& [name, parameter] : model_.parameters()) {
    const auto found = content.tensors.find("model." + name);
    FEM_CHECK(found != content.tensors.end() && found->second.sizes() == parameter.sizes(),
              "argmax: expected a tensor 'model.", name, "' of shape ", shape_of(parameter), " in ", path.string(),
              "; delete it to start afresh");
    at::Tensor(parameter).copy_(found->second);
  }
  optimizer_.restore(optimizer);
  return std::stod(content.metadata.at("seconds"));
}

}  // namespace fem
