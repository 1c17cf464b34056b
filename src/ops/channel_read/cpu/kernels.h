// What the channel_read kernels are given: raw pointers and sizes, no torch.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/rows.h"
#include "cpu/segment.h"

namespace fem::channel_kernels {

using cpu::Groups;
using cpu::Rows;
using cpu::Segment;

constexpr int64_t kChunk = 64;     // tokens from one checkpoint to the next
constexpr int64_t kChannels = 32;  // two cache lines of float32: the unit of parallel work

// Where the channels of all heads lie in one row, heads is 1 and width all of them. Channel c of head h has index
// h * width + c in what has no tokens: beta and states.
struct Arguments {
  bool bfloat16;                   // else float32
  bool strict;                     // token t sees i < t only
  bool with_weights, with_decays;  // one of them at least
  int64_t tokens, heads, width;
  Rows value, log_weight, log_decay;
  const float* beta;     // [channels], null: mean only
  const bool* key_mask;  // [B, T] of real tokens, or null
  float* checkpoints;    // [*, 1 + streams, channels] states before every kChunk tokens

  int64_t channels() const { return heads * width; }
  int64_t streams() const { return beta ? 3 : 2; }
  int64_t groups_a_head() const { return (width + kChannels - 1) / kChannels; }
  int64_t groups() const { return heads * groups_a_head(); }
  int64_t first_channel(int64_t group) const {
    return group / groups_a_head() * width + group % groups_a_head() * kChannels;
  }
};

struct Forward : Arguments {
  void* mean;                           // [B, T, heads, width], as all that is written
  float *free_energy, *log_normalizer;  // the former only with beta
};

struct Backward : Arguments {
  Rows grad_mean, grad_free_energy, grad_log_normalizer;  // the latter two float32; no data: zeros
  void *grad_value, *grad_log_weight, *grad_log_decay;
};

// All act on a segment, groups being of kChannels channels. States are [1 + streams, channels]: scale, sums of 1, v
// and, with beta, exp(beta v); gradients of states likewise, but that the scale, a choice of units, has none except in
// an initial state. Where they are null nothing is before or after, or what comes out is not wanted. Scratch: for each
// of groups() kChannels times so many floats.
constexpr int64_t kStateFloats = 7, kAdjointFloats = 10;

// The reads of a segment and the checkpoints before its chunks. Returns the largest |beta v|.
FEM_DECLARE_KERNEL(float, forward, const Forward&, const Segment&, Groups, const float* before, float* after,
                   float* scratch)
// The gradients of a segment, with the initial state before it where its gradient is wanted. Writes grad_beta
// [channels].
FEM_DECLARE_KERNEL(void, backward, const Backward&, const Segment&, Groups, const float* initial,
                   const float* grad_after, float* grad_before, float* grad_beta, float* scratch)

// The state after a segment alone and its total log-decay, with what rounding took off it: [2, channels].
FEM_DECLARE_KERNEL(void, advance, const Forward&, const Segment&, Groups, const float* before, float* after,
                   float* log_decay)
// The gradient of the state before a segment alone, and the factor [channels] of one that arrives after it.
FEM_DECLARE_KERNEL(void, retreat, const Backward&, const Segment&, Groups, const float* grad_after, float* grad_before,
                   float* factor)

}  // namespace fem::channel_kernels
