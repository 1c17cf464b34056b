#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace fem::bench {

// What a measurement was made on.
struct Machine {
  std::string cpu, isa;  // the processor's name, and the instruction set of the kernels
  int64_t cores = 0, threads = 0;
  std::vector<std::pair<std::string, int64_t>> caches;  // L1d, L2, ... in bytes, as one core sees them; may be empty

  int64_t largest_cache() const;
};

Machine this_machine();

nlohmann::ordered_json to_json(const Machine& machine);

}  // namespace fem::bench
