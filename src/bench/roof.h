// The two roofs under which every computation stays: arithmetic and memory.
#pragma once

#include "bench/work.h"

namespace fem::bench {

// 10^9 floating-point operations and 10^9 bytes a second.
struct Speed {
  double gflops = 0, gbytes_per_s = 0;
};

struct Roof {
  Speed all_threads, one_thread;
};

// The best of several short runs: multiply-adds in registers, and reading of far more memory than the caches hold.
Roof measure_roof();

// Of two measurements of one machine what came nearer to what it can do.
Roof higher(const Roof& a, const Roof& b);

// Is it memory, not arithmetic, that takes longer at full speed?
bool memory_binds(const Cost& cost, const Speed& roof);

}  // namespace fem::bench
