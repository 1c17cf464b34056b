#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fem::bench {

struct Shape {
  std::string name;
  int64_t dim, heads, length, batch;
};

// S1 ... S4; N128, N256 and N512, rows as narrow models have them; D1, D8 and D32, for decoding; and "tiny", which only
// checks that a benchmark runs. Throws for an unknown name.
Shape shape_named(const std::string& name);
std::vector<Shape> shapes_named(const std::vector<std::string>& names);

}  // namespace fem::bench
