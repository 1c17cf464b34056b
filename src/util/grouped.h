#pragma once

#include <cstdint>
#include <string>

namespace fem {

// Thousands separated: 1,234,567.
inline std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

}  // namespace fem
