// FreeEnergyMixer: mix() with its parameters, under the authors' names.
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "fem/inspect.h"
#include "fem/mixer.h"
#include "io/mixer_config.h"
#include "mixer/parameters.h"
#include "nn/parameters.h"

namespace fem {
FreeEnergyMixerImpl::FreeEnergyMixerImpl(const MixerOptions& options) : options(options) { reset(); }

void FreeEnergyMixerImpl::reset() {
  weights = {};
  visit_parameters(options, weights, [this](const ParameterSpec& spec, at::Tensor& slot) {
    slot = register_dotted(*this, spec.name, initial_value(spec));
  });
}

std::shared_ptr<torch::nn::Module> FreeEnergyMixerImpl::clone(const std::optional<at::Device>& device) const {
  // Not Cloneable's: it would exchange the parameters of the submodules under the hands of weights.
  const at::NoGradGuard no_gradients;
  const auto copy = std::make_shared<FreeEnergyMixerImpl>(options);
  auto parameters = copy->named_parameters();
  for (const auto& original : named_parameters()) {
    at::Tensor& parameter = parameters[original.key()];
    parameter.set_data(
        original->to(device.value_or(original->device()), original->scalar_type(), false, /*copy=*/true));
    parameter.set_requires_grad(original->requires_grad());
  }
  copy->train(is_training());
  return copy;
}

at::Tensor FreeEnergyMixerImpl::forward(const at::Tensor& x, const Batch& batch) {
  return mix(x, weights, options, batch, nullptr, is_training());
}

at::Tensor FreeEnergyMixerImpl::forward(const at::Tensor& x, MixerState& state, const Batch& batch) {
  return mix(x, weights, options, batch, &state, is_training());
}

Inspection FreeEnergyMixerImpl::inspect(const at::Tensor& x, const std::vector<int64_t>& positions,
                                        const Batch& batch) const {
  return fem::inspect(x, weights, options, positions, batch);
}

// "fem::FreeEnergyMixer(n_embd=64, n_head=4, causal=false)": whatever differs from the defaults.
void FreeEnergyMixerImpl::pretty_print(std::ostream& stream) const {
  const nlohmann::json set = to_json(options), defaults = to_json(MixerOptions());
  stream << "fem::FreeEnergyMixer(n_embd=" << options.n_embd << ", n_head=" << options.n_head;
  for (const auto& [name, value] : set.items())
    if (name != "n_embd" && name != "n_head" && value != defaults[name]) stream << ", " << name << '=' << value;
  stream << ')';
}

}  // namespace fem
