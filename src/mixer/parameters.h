#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <optional>

#include "fem/mixer.h"

namespace fem {

// Calls visit(spec, slot) for every parameter of a configuration, slot being its place in weights: the one list behind
// names, shapes, initial values and binding.
void visit_parameters(const MixerOptions& options, MixerWeights& weights,
                      const std::function<void(const ParameterSpec&, at::Tensor& slot)>& visit);

// What a parameter starts as; torch's default generator unless one is given.
at::Tensor initial_value(const ParameterSpec& spec, std::optional<at::Generator> generator = std::nullopt);

// Registers "tdc.fwd.ln.weight" as parameter "weight" of module "ln" of module "fwd" of module "tdc" of root.
at::Tensor& register_dotted(torch::nn::Module& root, const std::string& name, at::Tensor parameter);

}  // namespace fem
