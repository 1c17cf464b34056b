#pragma once

#include "fem/mixer.h"

namespace fem {

// Throws one clear sentence if mix() cannot take these arguments.
void check_call(const at::Tensor& x, const MixerWeights& weights, const MixerOptions& options, const Batch& batch,
                const MixerState* state);

}  // namespace fem
