// What the ssm_read kernels are given. Channels are (head, channel of the head) in one row; states and everything else
// that lives between kernels is float32 in lines of channels, padded: [.., R, line].
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/rows.h"
#include "cpu/segment.h"

namespace fem::ssm_kernels {

using cpu::Groups;
using cpu::Rows;
using cpu::Segment;

constexpr int64_t kChannels = 16;  // one cache line of float32: the unit of division among threads, and of padding
constexpr int64_t kChunk = 128;    // tokens from one checkpoint to the next: their states fill the second-level cache

// What of the state a token reads: with its own input, decayed but without it, or as the tokens before left it.
enum class Reads { kAfter, kDecayed, kBefore };

struct Arguments {
  bool bfloat16;  // else float32
  Reads reads;
  int64_t tokens, channels, line, rank;
  Rows value, delta, B, C;  // [B, T, channels], [B, T, R]
  const float *A, *D;       // [R, line], [line]; 0 beyond the channels, D 0 where a token does not count itself
  const float* beta;        // [line], 1 beyond the channels; null: mean only
  const bool* key_mask;     // [B, T] of real tokens, or null
  float* checkpoints;       // [*, streams, R, line] states before every kChunk tokens
};

struct Forward : Arguments {
  void* mean;             // [B, T, channels]
  float* free_energy;     // [B, T, channels], only with beta
  float* log_normalizer;  // [B, T, channels]
};

struct Backward : Arguments {
  Rows grad_mean, grad_free_energy, grad_log_normalizer;  // the latter two float32; no data: no gradient
  void *grad_value, *grad_delta;                          // [B, T, channels]
};

// Where the backward of some channels of a segment adds up.
struct Sink {
  float* grad_rows;      // [B, T, 2, R] gradients of B and C from these channels
  float* grad_channels;  // [R + 2, line] gradients of A, D and beta, added to
};

// All act on a segment, groups being of kChannels channels. States and their gradients are [streams, R, line]; where
// they are null nothing is before or after, or what comes out is not wanted.

// The reads of a segment and the checkpoints before its chunks. Returns the largest |beta v|.
FEM_DECLARE_KERNEL(int64_t, forward_scratch, const Arguments&)
FEM_DECLARE_KERNEL(float, forward, const Forward&, const Segment&, Groups, const float* before, float* after,
                   float* scratch)
FEM_DECLARE_KERNEL(int64_t, backward_scratch, const Arguments&)
FEM_DECLARE_KERNEL(void, backward, const Backward&, const Segment&, Groups, const float* grad_after, float* grad_before,
                   const Sink&, float* scratch)

// The state after a segment alone, the gradient of the one before it. elapsed [line] is the sum of delta.
FEM_DECLARE_KERNEL(void, advance, const Forward&, const Segment&, Groups, const float* before, float* after,
                   float* elapsed, float* scratch)
FEM_DECLARE_KERNEL(void, retreat, const Backward&, const Segment&, Groups, const float* grad_after, float* grad_before,
                   float* elapsed, float* scratch)
// to += exp(A elapsed) from, states both.
FEM_DECLARE_KERNEL(void, join, const Arguments&, Groups, const float* from, const float* elapsed, float* to)

}  // namespace fem::ssm_kernels
