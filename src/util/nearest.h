#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fem {

// How many letters must be put in, left out, exchanged or swapped with their neighbour to make one word of the other.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// "; did you mean learning_rate?" for the known name nearest to a misspelt one, nothing if none is near.
template <typename Names>
std::string did_you_mean(std::string_view name, const Names& known) {
  constexpr size_t kLongest = 64;  // what is longer was never one of ours
  const size_t most = name.size() > kLongest ? 0 : (name.size() + 2) / 3;
  std::string nearest;
  size_t least = most + 1;
  for (const auto& candidate : known)
    if (const size_t distance = edit_distance(name, candidate); distance < least) {
      least = distance;
      nearest = candidate;
    }
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace fem
