#include "inspect/subject.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace fem {

std::vector<int64_t> spread(int64_t all, int64_t most) {
  const int64_t count = std::min(all, most);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(count > 1 ? i * (all - 1) / (count - 1) : 0);
  return numbers;
}

Trace row_of(const Trace& trace, int64_t row) {
  Trace one;
  for (const auto& [name, made] : trace)
    if (made.dim() == 3) one.emplace_back(name, made.slice(0, row, row + 1));
  return one;
}

}  // namespace fem
