#pragma once

#include "bench/work.h"
#include "fem/backbone.h"

namespace fem {

// What a pass of a backbone must multiply at the least (bench/work.h says what counts), from its shapes: projections
// and MLPs, and what the mixer does between tokens.
//   diff_attention     two maps of half the width, each over the values of a head
//   hyena              three real transforms of 2 T (5/2 n log2 n each) and a product a channel, forward and backward
//                      alike, and the network of the filter once a sequence length
//   delta_net, gated   a state K x V is read under the key, written and read at every token
//   mamba2             written and read
// Short convolutions are counted, too.
bench::Flops backbone_flops(const BackboneOptions& options, const bench::Shape& shape);

}  // namespace fem
