#pragma once

#include "fem/mixer.h"

namespace fem {

// Where each token stands. Masked tokens do not count.
struct Positions {
  at::Tensor index;        // [T] or [B, T] real tokens before it in its sequence
  at::Tensor first, last;  // [T] bool, begins or ends a packed sequence; undefined unless packed
};

Positions positions_of(const at::Tensor& x, const Batch& batch, const MixerState* state);

}  // namespace fem
