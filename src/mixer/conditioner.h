#pragma once

#include <vector>

#include "fem/mixer.h"
#include "fem/ops/modulate.h"
#include "mixer/positions.h"

namespace fem {

// c, sliced by what it modulates. Undefined without conditioner, or without that gate.
struct Conditioning {
  Modulation value, temperature_gate, outer_gate;
  std::vector<Modulation> prior;  // what the prior declares: leading, then trailing
};

// c_t of math: a gated low-rank convolution with learned decay over x [B, T, D]. Moves state->conditioner on.
Conditioning condition(const at::Tensor& x, const MixerWeights& weights, const MixerOptions& options,
                       const MixerSizes& sizes, const Positions& positions, const Batch& batch, MixerState* state);

int64_t conditioner_width(const MixerOptions& options, const MixerSizes& sizes);    // H_c of one direction
int64_t conditioner_outputs(const MixerOptions& options, const MixerSizes& sizes);  // columns of out_proj

}  // namespace fem
