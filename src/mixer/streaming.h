#pragma once

#include <functional>

#include "fem/mixer.h"
#include "priors/memory.h"

namespace fem {

// Runs a layer on x after the tokens of a state and advances the state. The layer is given a copy in which it keeps
// what it declares in memory. Without gradients; a state that is not the layer's is refused, and a call that throws
// leaves it as it was.
at::Tensor stream(const char* who, const at::Tensor& x, const Batch& batch, const Memory& memory, MixerState& state,
                  const std::function<at::Tensor(MixerState&)>& layer);

}  // namespace fem
