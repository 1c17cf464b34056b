#pragma once

#include <vector>

#include "fem/mixer.h"
#include "priors/part.h"

namespace fem {

// Throws one clear sentence if mix() cannot take these arguments.
void check_call(const MixerInput& in, const MixerWeights& weights, const MixerOptions& options, const Batch& batch,
                const MixerState* state);

// The same of the weights, parts being those of these options with their places in them.
void check_weights(const MixerWeights& weights, const std::vector<AppliedPart>& parts, const MixerOptions& options,
                   const MixerSizes& sizes);

// The same of the tokens that are real and of packed sequences; who complains.
void check_batch(const char* who, const at::Tensor& x, const Batch& batch);

}  // namespace fem
