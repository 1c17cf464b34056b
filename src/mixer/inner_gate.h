#pragma once

#include "fem/mixer.h"

namespace fem {

// Sets lambda in some channels [E] (bool) of a layer to 0 or 1 whatever the token, in its weights: W_lambda and its
// columns of the conditioner change. Needs an inner gate and biases.
void set_inner_gate(const MixerWeights& weights, const MixerOptions& options, const at::Tensor& channels,
                    double lambda);

}  // namespace fem
