#pragma once

#include <vector>

#include "fem/mixer.h"
#include "fem/ops/modulate.h"
#include "mixer/positions.h"

namespace fem {

// c_t of math, for all parts together: a gated low-rank convolution with learned decay over x [B, T, D]. Undefined
// without conditioner. Advances state->conditioner.
Modulation condition(const at::Tensor& x, const MixerWeights& weights, const MixerOptions& options,
                     const Positions& positions, const Batch& batch, MixerState* state);

int64_t conditioner_width(const MixerOptions& options, const MixerSizes& sizes);  // H_c of one direction

// Calls visit(name, shape of the weight, layer) for the layers of one direction in the order of the parameters, each
// layer at its place in w: norms have one dimension. out_proj, which is none, comes after them.
template <typename Weights, typename Visit>
void visit_conditioner_layers(const MixerOptions& options, int64_t width, Weights& w, const Visit& visit) {
  const std::vector<int64_t> of_x{options.n_embd}, of_h{width}, linear{width, options.n_embd};
  if (options.conv_norm_first) visit("norm", of_x, w.norm);
  visit("in_f", linear, w.in_f);
  visit("x_f", linear, w.x_f);
  visit("shortcut", linear, w.shortcut);
  visit("ln", of_h, w.ln);
}

}  // namespace fem
