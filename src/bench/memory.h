#pragma once

#include <cstdint>

#include "bench/paired.h"

namespace fem::bench {

// The most memory, in bytes, that tensors allocated during work() held at one time: saved tensors, gradients and
// scratch, not what was there before. Counts torch's CPU allocator; buffers that BLAS keeps for itself are on nobody's
// account.
int64_t peak_extra_bytes(const Work& work);

}  // namespace fem::bench
