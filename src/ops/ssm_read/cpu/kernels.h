// What the ssm_read kernels are given. Channels are (head, channel of the head) in one row; states and everything else
// that lives between kernels is float32 in lines of channels, padded: [.., R, line].
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::ssm_kernels {

constexpr int64_t kChannels = 16;  // one cache line of float32: the unit of division among threads, and of padding
constexpr int64_t kChunk = 128;    // tokens from one checkpoint to the next: their states fill the second-level cache

// A tensor [B, T, *] with unit element stride; strides in elements.
struct Rows {
  const void* data;
  bool bfloat16;  // else float32
  int64_t batch, token;
};

// Tokens begin <= t < end of a batch row, at most kChunk of one sequence.
struct Chunk {
  int64_t batch, begin, end, sequence;
  bool first, last;  // of its sequence
};

// What of the state a token reads: with its own input, decayed but without it, or as the tokens before left it.
enum class Reads { kAfter, kDecayed, kBefore };

struct Range {
  int64_t begin, end;
};

struct Arguments {
  bool bfloat16;  // the dtype of what is written in the shape of value; else float32
  Reads reads;
  int64_t tokens, channels, line, rank;
  Rows value, delta, B, C;
  const float *A, *D;    // [R, line], [line]; 0 beyond the channels, D 0 where a token does not count itself
  const float* beta;     // [line], 1 beyond the channels; null: mean only
  const bool* key_mask;  // [B, T] of real tokens, or null
  const Chunk* chunks;
  const float* initial;  // [N, streams, R, line], or null
  float* checkpoints;    // [chunks, streams, R, line] the state before each chunk
};

struct Forward : Arguments {
  void* mean;             // [B, T, channels]
  float* free_energy;     // [B, T, channels], only with beta
  float* log_normalizer;  // [B, T, channels]
  float* state;           // [N, streams, R, line]
};

struct Backward : Arguments {
  Rows grad_mean, grad_free_energy, grad_log_normalizer;  // no data: no gradient
  const float* grad_state;                                // [N, streams, R, line], or null
  void *grad_value, *grad_delta;                          // [B, T, channels]
  float* grad_initial;                                    // [N, streams, R, line], or null
};

// Where an item of the backward, some channels of some chunks, adds up.
struct Sink {
  float* adjoint;        // [streams, R, line] gradient of the state after the item's chunks
  float* grad_rows;      // [B, T, 2, R] gradients of B and C from these channels
  float* grad_channels;  // [R + 2, line] gradients of A, D and beta from these chunks, set to 0 by the caller
};

// All act on a range of channels, from a multiple of kChannels on, and a range of chunks.
FEM_DECLARE_KERNEL(int64_t, forward_scratch, const Arguments&)
FEM_DECLARE_KERNEL(float, forward, const Forward&, Range channels, Range chunks, float* scratch)  // largest |beta v|
FEM_DECLARE_KERNEL(int64_t, backward_scratch, const Arguments&)
FEM_DECLARE_KERNEL(void, backward, const Backward&, Range channels, Range chunks, const Sink&, float* scratch)

// The same of chunks of one sequence with nothing (but an initial state, the last state's gradient) before them: the
// state after them, the gradient of the state before them. elapsed [line] is the sum of delta.
FEM_DECLARE_KERNEL(void, forward_ahead, const Arguments&, Range channels, Range chunks, float* state, float* elapsed,
                   float* scratch)
FEM_DECLARE_KERNEL(void, backward_ahead, const Backward&, Range channels, Range chunks, float* adjoint, float* elapsed,
                   float* scratch)
// to += exp(A elapsed) from, states both.
FEM_DECLARE_KERNEL(void, join, const Arguments&, Range channels, const float* elapsed, const float* from, float* to)

}  // namespace fem::ssm_kernels
