// What a kernel works on: a few channels of a segment, chunk by chunk copied into columns of vectors, so that the loops
// over tokens know neither strides, nor dtypes, nor widths that are no multiple of a vector.
#pragma once

#include "cpu/vec.h"
#include "ops/channel_read/cpu/kernels.h"

namespace fem::channel_kernels {
namespace {

using namespace fem::cpu;

constexpr int kVectors = kChannels / kLanes;
typedef float Column[kChunk * kLanes];
typedef float LongColumn[(kChunk + 1) * kLanes];
typedef Column Columns[kVectors];

// A vector of channels in what has no tokens.
struct Place {
  int64_t channel, lanes;
};

// A segment of a group of channels.
struct Item {
  const Segment& segment;
  int64_t head, channel, width;

  int vectors() const { return static_cast<int>((width + kLanes - 1) / kLanes); }
  Place place(const Arguments& a, int vector) const {
    const int64_t first = vector * kLanes, rest = width - first;
    return {head * a.width + channel + first, rest < kLanes ? rest : kLanes};
  }
};
inline Item item_of(const Arguments& a, const Segment& segment, int64_t group) {
  const int64_t channel = group % a.groups_a_head() * kChannels, rest = a.width - channel;
  return {segment, group / a.groups_a_head(), channel, rest < kChannels ? rest : kChannels};
}

// Calls body(index of the group, vector, place) for every vector of the groups.
template <typename Body>
void for_vectors_of(const Arguments& a, const Segment& segment, Groups groups, Body&& body) {
  for (int64_t g = groups.begin; g < groups.end; ++g) {
    const Item item = item_of(a, segment, g);
    for (int i = 0; i < item.vectors(); ++i) body(g - groups.begin, i, item.place(a, i));
  }
}

inline Floats load_lanes(const float* p, int64_t lanes) { return lanes == kLanes ? load(p) : load_first(p, lanes); }
inline void store_lanes(float* p, Floats x, int64_t lanes) { lanes == kLanes ? store(p, x) : store_first(p, x, lanes); }

// The row of the group that comes next, while this one is copied: rows are too far apart for the hardware to guess.
template <int kForWriting, typename Scalar>
inline void prefetch_next(const Scalar* row) {
  const auto* next = reinterpret_cast<const char*>(row + kChannels);
  for (uint64_t line = 0; line < kChannels * sizeof(Scalar); line += 64) __builtin_prefetch(next + line, kForWriting);
}

// Rows are copied whole: every cache line is touched once.
template <typename Scalar>
void gather_as(const Rows& rows, const Item& item, Tokens tokens, Columns& columns) {
  const auto* from = static_cast<const Scalar*>(rows.data) + tokens.batch * rows.batch + tokens.begin * rows.token +
                     item.head * rows.head + item.channel;
  for (int64_t at = 0; at < tokens.count() * kLanes; at += kLanes, from += rows.token) {
    prefetch_next<0>(from);
    for_vectors(item.width, [&](int64_t c, auto&& get, auto&&) { store(columns[c / kLanes] + at, get(from + c)); });
  }
}
inline void gather(const Rows& rows, bool bfloat16, const Item& item, Tokens tokens, Columns& columns) {
  if (!rows.data)
    std::memset(columns, 0, sizeof(columns));
  else
    bfloat16 ? gather_as<Bfloat16>(rows, item, tokens, columns) : gather_as<float>(rows, item, tokens, columns);
}

template <typename Scalar>
void scatter_as(const Arguments& a, const Columns& columns, const Item& item, Tokens tokens, Scalar* to) {
  to += (tokens.batch * a.tokens + tokens.begin) * a.channels() + item.head * a.width + item.channel;
  for (int64_t at = 0; at < tokens.count() * kLanes; at += kLanes, to += a.channels()) {
    prefetch_next<1>(to);
    for_vectors(item.width, [&](int64_t c, auto&&, auto&& put) { put(to + c, load(columns[c / kLanes] + at)); });
  }
}
inline void scatter(const Arguments& a, const Columns& columns, const Item& item, Tokens tokens, float* to) {
  scatter_as(a, columns, item, tokens, to);
}
inline void scatter(const Arguments& a, const Columns& columns, const Item& item, Tokens tokens, void* to) {
  a.bfloat16 ? scatter_as(a, columns, item, tokens, static_cast<Bfloat16*>(to))
             : scatter_as(a, columns, item, tokens, static_cast<float*>(to));
}

}  // namespace
}  // namespace fem::channel_kernels
