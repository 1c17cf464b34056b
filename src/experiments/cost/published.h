// The figures of the paper's Tables 5 and 7 for the rows that there are here.
#pragma once

#include <optional>
#include <string>

namespace fem {

// Relative to plain attention on a fused kernel, as printed: one NVIDIA L40S, float32.
struct PublishedCost {
  double forward = 0, training = 0;  // latencies; of Table 5, whose own have two digits, inverse throughputs
  std::optional<double> forward_memory, training_memory;  // peaks; Table 7 alone
};

std::optional<PublishedCost> published_cost(const std::string& table, const std::string& row);

}  // namespace fem
