#pragma once

#include <iosfwd>
#include <vector>

#include "bench/report.h"

namespace fem::bench {

// The reads alone against torch's fused attention of the same total width.
std::vector<Case> bench_read(const Settings& settings);

// The whole layer against a plain causal attention layer; prints both parameter counts.
std::vector<Case> bench_layer(const Settings& settings, std::ostream& out);

// One token after shape.length others through a stack of layers, against an attention layer with a cache of keys and
// values; prints what it will take of memory, then what each side remembers.
std::vector<Case> bench_decode(const Settings& settings, std::ostream& out);

// About what the tensors of decoding take at most: at D8 the process was 2.67 GB with softmax and 1.51 GB with gla, of
// which 0.3 GB are torch's.
int64_t decode_bytes(const Shape& shape, const std::vector<PriorType>& priors);

}  // namespace fem::bench
