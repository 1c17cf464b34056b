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
// values; prints what each side remembers.
std::vector<Case> bench_decode(const Settings& settings, std::ostream& out);

}  // namespace fem::bench
