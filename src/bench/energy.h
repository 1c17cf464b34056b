// What the mixers that look at a curvature cost beside the attention that they are made of.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "bench/shapes.h"

namespace fem::bench {

// One reading at one shape, medians of milliseconds; the core is attention's, on the same kernels, in the same run.
struct EnergyCase {
  std::string read, shape, kind;  // kind: forward, backward, decode
  double ms = 0, core_ms = 0, torch_ms = 0;
  double stated = 1;  // the ratio of multiply-adds to the core's

  double ratio() const { return ms / core_ms; }
};

// All reads of a shape in turn, so that a slow moment of the machine meets all of them.
std::vector<EnergyCase> bench_energy(const std::vector<Shape>& shapes, int64_t repeats);

void print_energy(const std::vector<EnergyCase>& cases, std::ostream& out);
void write_energy_json(const std::vector<EnergyCase>& cases, std::ostream& out);

}  // namespace fem::bench
