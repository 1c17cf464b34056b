// Scans are divided among threads by batch rows and groups of channels.
#pragma once

#include "cpu/vec.h"

namespace fem::cpu {
namespace {

// Calls body(batch, channel, get, put) for every vector of channels of the items (batch, group of channels).
template <typename Body>
inline void for_channel_vectors(int64_t channels, int64_t group, int64_t begin, int64_t end, Body&& body) {
  const int64_t groups = (channels + group - 1) / group;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t first = item % groups * group;
    const int64_t width = channels - first < group ? channels - first : group;
    for_vectors(width, [&](int64_t c, auto&& get, auto&& put) { body(item / groups, first + c, get, put); });
  }
}

}  // namespace
}  // namespace fem::cpu
