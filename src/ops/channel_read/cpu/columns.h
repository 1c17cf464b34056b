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

struct Tokens {
  int64_t begin, end;

  int64_t count() const { return end - begin; }
};

// A vector of channels in what has no tokens.
struct Place {
  int64_t channel, lanes;
};

// A segment of a group of channels.
struct Item {
  int64_t index;          // of the item
  int64_t segment_index;  // of its segment
  const Segment& segment;
  int64_t head, channel, width;

  int vectors() const { return static_cast<int>((width + kLanes - 1) / kLanes); }
  Place place(const Arguments& a, int vector) const {
    const int64_t first = vector * kLanes, rest = width - first;
    return {head * a.width + channel + first, rest < kLanes ? rest : kLanes};
  }
};
inline Item item_of(const Arguments& a, int64_t segment, int64_t group) {
  const int64_t groups_a_head = (a.width + kChannels - 1) / kChannels;
  const int64_t channel = group % groups_a_head * kChannels, rest = a.width - channel;
  return {group * a.segment_count + segment,  segment, a.segments[segment], group / groups_a_head, channel,
          rest < kChannels ? rest : kChannels};
}

// Some groups of one segment. All of them go through a chunk before the next one begins, so that memory is read and
// written in long runs.
struct Share {
  int64_t segment, first, last;

  int64_t groups() const { return last - first; }
  Item item(const Arguments& a, int64_t i) const { return item_of(a, segment, first + i); }
};

// Calls body(share) for the items begin <= i < end.
template <typename Body>
void for_shares(const Arguments& a, int64_t begin, int64_t end, Body&& body) {
  const auto group_from = [&](int64_t item, int64_t segment) {  // the first of this segment that is not before item
    return (item - segment + a.segment_count - 1) / a.segment_count;
  };
  for (int64_t segment = 0; segment < a.segment_count; ++segment) {
    const Share share{segment, group_from(begin, segment), group_from(end, segment)};
    if (share.groups() > 0) body(share);
  }
}

inline int64_t chunks_of(const Segment& segment) { return (segment.end - segment.begin + kChunk - 1) / kChunk; }
inline Tokens chunk_of(const Segment& segment, int64_t index) {
  const int64_t begin = segment.begin + index * kChunk;
  return {begin, begin + kChunk < segment.end ? begin + kChunk : segment.end};
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
  const auto* from = static_cast<const Scalar*>(rows.data) + item.segment.batch * rows.batch +
                     tokens.begin * rows.token + item.head * rows.head + item.channel;
  for (int64_t at = 0; at < tokens.count() * kLanes; at += kLanes, from += rows.token) {
    prefetch_next<0>(from);
    for_vectors(item.width, [&](int64_t c, auto&& get, auto&&) { store(columns[c / kLanes] + at, get(from + c)); });
  }
}
inline void gather(const Rows& rows, const Item& item, Tokens tokens, Columns& columns) {
  if (!rows.data)
    std::memset(columns, 0, sizeof(columns));
  else
    rows.bfloat16 ? gather_as<Bfloat16>(rows, item, tokens, columns) : gather_as<float>(rows, item, tokens, columns);
}

template <typename Scalar>
void scatter_as(const Arguments& a, const Columns& columns, const Item& item, Tokens tokens, void* data) {
  auto* to = static_cast<Scalar*>(data) + (item.segment.batch * a.tokens + tokens.begin) * a.channels() +
             item.head * a.width + item.channel;
  for (int64_t at = 0; at < tokens.count() * kLanes; at += kLanes, to += a.channels()) {
    prefetch_next<1>(to);
    for_vectors(item.width, [&](int64_t c, auto&&, auto&& put) { put(to + c, load(columns[c / kLanes] + at)); });
  }
}
inline void scatter(const Arguments& a, const Columns& columns, const Item& item, Tokens tokens, const Output& output) {
  output.bfloat16 ? scatter_as<Bfloat16>(a, columns, item, tokens, output.data)
                  : scatter_as<float>(a, columns, item, tokens, output.data);
}

}  // namespace
}  // namespace fem::channel_kernels
