// How much a computation must do at the least, whoever does it. Two operations a multiply-add; products only: not
// exponentials, gates, norms, rotations or decays.
#pragma once

#include <cstdint>

#include "bench/shapes.h"
#include "fem/options.h"

namespace fem::bench {

struct Cost {
  int64_t flops = 0, bytes = 0;  // 0: not counted
};

struct Flops {
  int64_t forward = 0, backward = 0;

  int64_t training() const { return forward + backward; }
};

// The widths of one head.
struct Head {
  int64_t key = 0, value = 0;
};

// softmax: two products over the T (T + 1) / 2 pairs of tokens, five in the backward (the scores once more).
// linear, gla: the state K x (2 V + 1) is updated and read at every token; five such products in the backward.
// The other priors have no products: 0. Without a free energy v alone is summed, not [v, e^{beta v}]: V, not 2 V.
Flops read_flops(PriorType prior, const Shape& shape, const Head& head, bool free_energy = true);
Flops attention_flops(const Shape& shape);

// With the projections, the conditioner's included; they are three products in training.
Flops mixer_flops(const MixerOptions& options, const Shape& shape);
Flops attention_layer_flops(const Shape& shape);

// One token after shape.length others. Moved: every weight once, and the past, which is read (keys and values) or read
// and written (sums).
Cost mixer_step_cost(const MixerOptions& options, const Shape& shape, int64_t state_bytes);
Cost attention_step_cost(const Shape& shape, int64_t cache_bytes);

}  // namespace fem::bench
