#pragma once

#include "fem/mixer.h"
#include "fem/ops/modulate.h"
#include "mixer/positions.h"

namespace fem {

// c_t of math, for all parts together: a gated low-rank convolution with learned decay over x [B, T, D]. Undefined
// without conditioner. Advances state->conditioner.
Modulation condition(const at::Tensor& x, const MixerWeights& weights, const MixerOptions& options,
                     const Positions& positions, const Batch& batch, MixerState* state);

int64_t conditioner_width(const MixerOptions& options, const MixerSizes& sizes);  // H_c of one direction

}  // namespace fem
