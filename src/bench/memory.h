#pragma once

#include <cstdint>

#include "bench/paired.h"
#include "fem/state.h"

namespace fem::bench {

// What tensors that are allocated during work() take; not what was there before. Counts torch's CPU allocator; buffers
// that BLAS keeps for itself are on nobody's account.
struct Memory {
  int64_t peak_bytes;   // the most that is held at one time: saved tensors, gradients and scratch
  int64_t kept_bytes;   // held when it is over
  int64_t allocations;  // how many blocks were asked for
};

Memory memory_of(const Work& work);

// The tensors of a state.
int64_t bytes_of(const MixerState& state);

// What the process holds of the machine's memory, whoever asked for it (Linux: the resident set).
int64_t resident_bytes();

}  // namespace fem::bench
