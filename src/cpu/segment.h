// What of a scan a kernel is called for.
#pragma once

#include <cstdint>

namespace fem::cpu {

// Tokens begin <= t < end of a row of the batch: a sequence, or a part of one cut where there are checkpoints.
struct Segment {
  int64_t sequence, batch, begin, end;
  int64_t checkpoint;  // index of the state before it among the checkpoints; those inside it follow
  bool first, last;    // of its sequence
};

// Heads, or groups of channels, which need nothing of each other.
struct Groups {
  int64_t begin, end;
};

struct Tokens {
  int64_t batch, begin, end;

  int64_t count() const { return end - begin; }
};

namespace {

// A segment in chunks of so many tokens.
inline int64_t chunk_count(const Segment& s, int64_t size) { return (s.end - s.begin + size - 1) / size; }
inline Tokens chunk_of(const Segment& s, int64_t index, int64_t size) {
  const int64_t begin = s.begin + index * size;
  return {s.batch, begin, begin + size < s.end ? begin + size : s.end};
}

}  // namespace
}  // namespace fem::cpu
