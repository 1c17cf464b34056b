#include "experiments/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "util/check.h"

namespace fem {

AdamW::AdamW(const NamedTensors& parameters, double learning_rate, double weight_decay)
    : learning_rate_(learning_rate), weight_decay_(weight_decay) {
  for (const auto& [name, parameter] : parameters) {
    names_.push_back(name);
    parameters_.push_back(parameter);
    first_.push_back(at::zeros_like(parameter));
    second_.push_back(at::zeros_like(parameter));
    steps_.push_back(at::zeros({}, at::kFloat));
  }
}

void AdamW::step(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& steps : steps_) steps += 1;
  at::_fused_adamw_(parameters_, gradients, first_, second_, {}, steps_, learning_rate_, 0.9, 0.999, weight_decay_,
                    1e-8, false, false);
}

int64_t AdamW::steps() const { return static_cast<int64_t>(steps_.at(0).item<float>()); }

NamedTensors AdamW::state() const {
  NamedTensors state{{"steps", steps_.at(0)}};
  for (size_t i = 0; i < names_.size(); ++i) {
    state["first." + names_[i]] = first_[i];
    state["second." + names_[i]] = second_[i];
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
  for (size_t i = 0; i < names_.size(); ++i) {
    copy(first_[i], "first." + names_[i]);
    copy(second_[i], "second." + names_[i]);
    copy(steps_[i], "steps");
  }
}

}  // namespace fem
