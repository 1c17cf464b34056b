#pragma once

#include <cstdint>

#include "bench/paired.h"
#include "fem/state.h"
#include "util/memory.h"

namespace fem::bench {

using fem::resident_bytes;
using Memory = Allocated;
Memory memory_of(const Work& work);

// The tensors of a state.
int64_t bytes_of(const MixerState& state);

}  // namespace fem::bench
