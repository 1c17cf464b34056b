#pragma once

#include "fem/mixer.h"
#include "priors/query_key.h"

namespace fem {

// What the softmax prior of a layer is made of, for looking at: queries of in.query, keys and conditioner of in.x.
// Throws one sentence for a layer whose prior is not the softmax over all earlier tokens.
QueryAndKey softmax_queries_and_keys(const MixerInput& in, const MixerWeights& weights, const MixerOptions& options);

}  // namespace fem
