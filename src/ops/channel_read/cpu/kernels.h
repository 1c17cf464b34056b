// What the channel_read kernels are given: raw pointers and sizes, no torch.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::channel_kernels {

constexpr int64_t kChunk = 64;     // tokens from one checkpoint to the next
constexpr int64_t kChannels = 32;  // two cache lines of float32: the unit of parallel work

// A tensor [B, T, heads, width] with unit element stride; strides in elements. Null counts as zeros.
struct Rows {
  const void* data;
  bool bfloat16;  // else float32
  int64_t batch, token, head;
};

// A tensor [B, T, heads, width], contiguous.
struct Output {
  void* data;
  bool bfloat16;
};

// Tokens begin <= t < end of one sequence. Where there are too few sequences and channels for all threads a sequence is
// divided into segments of whole chunks.
struct Segment {
  int64_t sequence, batch, begin, end;
  int64_t checkpoint;  // index of its first
  bool first, last;    // of its sequence
};

// Where the channels of all heads lie in one row, heads is 1 and width all of them. Channel c of head h has index
// h * width + c in what has no tokens: beta and states.
struct Arguments {
  bool strict;                     // token t sees i < t only
  bool with_weights, with_decays;  // one of them at least
  int64_t tokens, heads, width;
  Rows value, log_weight, log_decay;
  const float* beta;     // [channels], null: mean only
  const bool* key_mask;  // [B, T] of real tokens, or null
  const Segment* segments;
  int64_t segment_count;
  const float* initial;  // [N, 1 + streams, channels] or null
  float* checkpoints;    // [*, 1 + streams, channels] states: scale, sums of 1, v and, with beta, exp(beta v)

  int64_t channels() const { return heads * width; }
  int64_t streams() const { return beta ? 3 : 2; }
  int64_t groups() const { return heads * ((width + kChannels - 1) / kChannels); }
};

struct Forward : Arguments {
  Output mean, free_energy, log_normalizer;
  float* state;    // [N, 1 + streams, channels]
  float* largest;  // [items] largest |beta v|
};

struct Backward : Arguments {
  Rows grad_mean, grad_free_energy, grad_log_normalizer;
  const float* arriving;  // gradient of the sums after the last token of every segment, or null
  int64_t arriving_row;   // elements from segment to segment; sums are channels apart
  Output grad_value, grad_log_weight, grad_log_decay;
  float* grad_beta;     // [segments, channels]
  float* grad_initial;  // [N, 1 + streams, channels] or null
};

// Items are (group of kChannels channels, segment), the segment running fastest. A segment that is not the first of its
// sequence starts from its checkpoint. Scratch: for each of groups() kChannels times so many floats.
constexpr int64_t kStateFloats = 7, kReturningFloats = 10;
FEM_DECLARE_KERNEL(void, forward, const Forward&, int64_t begin, int64_t end, float* scratch)
FEM_DECLARE_KERNEL(void, backward, const Backward&, int64_t begin, int64_t end, float* scratch)

// What segments do to whatever state they start from, so that all can then run at once.
// Forward: rows of kSummary of the scale and sums of the segment's own tokens and its total log-decay, in two parts.
// Backward: the gradient of the sums before the segment if none arrives after it, and the factor of one that does.
constexpr int64_t kSummary = 6;          // scale, log-decay, its rounding error, sums
constexpr int64_t kSummaryBackward = 4;  // factor, gradients of sums
FEM_DECLARE_KERNEL(void, summarise, const Forward&, int64_t begin, int64_t end, float* summaries)
FEM_DECLARE_KERNEL(void, summarise_backward, const Backward&, int64_t begin, int64_t end, float* summaries)

}  // namespace fem::channel_kernels
