#pragma once

#include <functional>

#include "fem/mixer.h"

namespace fem {

// Calls visit(spec, slot) for every parameter of a configuration, slot being its place in weights: the one list behind
// names, shapes, initial values and binding.
void visit_parameters(const MixerOptions& options, MixerWeights& weights,
                      const std::function<void(const ParameterSpec&, at::Tensor& slot)>& visit);

}  // namespace fem
