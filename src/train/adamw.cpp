#include "train/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "util/check.h"

namespace fem {

AdamW::AdamW(const std::vector<TrainedParameter>& parameters, const AdamWOptions& options)
    : options_(options), groups_{{options.weight_decay}, {0.0}} {
  for (size_t place = 0; place < parameters.size(); ++place) {
    const auto& [name, parameter, decayed] = parameters[place];
    Group& group = groups_[decayed ? 0 : 1];
    group.places.push_back(place);
    group.names.push_back(name);
    group.parameters.push_back(parameter);
    group.first.push_back(at::zeros_like(parameter));
    group.second.push_back(at::zeros_like(parameter));
    group.steps.push_back(at::zeros({}, at::kFloat));
  }
  std::erase_if(groups_, [](const Group& group) { return group.places.empty(); });
}

void AdamW::step(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  for (Group& group : groups_) {
    std::vector<at::Tensor> own;
    for (const size_t place : group.places) own.push_back(gradients.at(place));
    for (at::Tensor& steps : group.steps) steps += 1;
    at::_fused_adamw_(group.parameters, own, group.first, group.second, {}, group.steps, options_.learning_rate,
                      options_.beta1, options_.beta2, group.weight_decay, 1e-8, false, false);
  }
}

NamedTensors AdamW::state() const {
  NamedTensors state{{"steps", groups_.at(0).steps.at(0)}};
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      state["first." + group.names[i]] = group.first[i];
      state["second." + group.names[i]] = group.second[i];
    }
  }
  return state;
}

void AdamW::restore(const NamedTensors& state) {
  const auto copy = [&](at::Tensor& into, const std::string& name) {
    const auto found = state.find(name);
    FEM_CHECK(found != state.end() && found->second.sizes() == into.sizes(), "AdamW: expected a tensor '", name,
              "' of shape ", shape_of(into), " in the checkpoint; delete it to start afresh");
    into.copy_(found->second);
  };
  for (Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      copy(group.first[i], "first." + group.names[i]);
      copy(group.second[i], "second." + group.names[i]);
      copy(group.steps[i], "steps");
    }
  }
}

}  // namespace fem
