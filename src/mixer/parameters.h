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

}  // namespace fem
