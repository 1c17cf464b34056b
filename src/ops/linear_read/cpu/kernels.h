// What the linear_read kernels are given: raw pointers and sizes, no torch.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/rows.h"

namespace fem::linear_kernels {

using cpu::Rows;

struct Arguments {
  bool bfloat16;  // else float32
  bool strict;    // i < t instead of i <= t
  int64_t heads, tokens, key_width, value_width;
  Rows query, key, value;
  Rows log_decay;        // [B, T, H], data null: no decay
  const float* beta;     // [H, V], null: mean only
  const bool* key_mask;  // [B, T] of real tokens, or null
  float* checkpoints;    // [B, count, H, K, X] state before token (j + 1) group_tokens
  int64_t group_tokens;  // between checkpoints, a multiple of 64
};

// Tokens begin <= t < end of a row of the batch: a sequence, or a part of one cut where there are checkpoints.
struct Segment {
  int64_t sequence, batch, begin, end;
  bool first, last;  // of its sequence
};

struct Forward : Arguments {
  const float* initial;   // [N, H, K, X] or null
  void* mean;             // [B, T, H, V]
  float* free_energy;     // [B, T, H, V] or null
  float* log_normalizer;  // [B, T, H]
  float* state;           // [N, H, K, X]
};

struct Backward : Arguments {
  const float* initial;                      // [N, H, K, X] or null
  Rows mean, free_energy, log_normalizer;    // as forward wrote them; the last two are float32
  Rows grad_mean;                            // data null: none
  Rows grad_free_energy;                     // float32, data null: none
  Rows grad_log_normalizer;                  // float32, data null: none
  const float* grad_state;                   // [N, H, K, X] or null
  void *grad_query, *grad_key, *grad_value;  // [B, T, H, *]
  void* grad_log_decay;                      // [B, T, H] or null
  float* grad_initial;                       // [N, H, K, X] or null
};

// Floats of a state in the kernels' layout, and of scratch memory a thread needs.
FEM_DECLARE_KERNEL(int64_t, state_floats, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, forward_scratch, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, backward_scratch, const Arguments&)

struct Heads {
  int64_t begin, end;
};

// The reads of a segment, its checkpoints and, at the end of the sequence, the states. Starts from starts [H, state]
// (kernels' layout), or with null from the initial states. Returns the largest |beta v|.
FEM_DECLARE_KERNEL(float, forward, const Forward&, const Segment&, Heads, const float* starts, float* scratch)
// The same for a whole sequence of a few tokens: one sweep over the state. V may be at most step_width().
FEM_DECLARE_KERNEL(float, step, const Forward&, const Segment&, Heads)
FEM_DECLARE_KERNEL(int64_t, step_tokens)
FEM_DECLARE_KERNEL(int64_t, step_width)

// The gradients of a segment from those of the states at its end [H, state] (kernels' layout; null: grad_state). Adds
// to grad_beta [H, V].
FEM_DECLARE_KERNEL(void, backward, const Backward&, const Segment&, Heads, const float* ends, double* grad_beta,
                   float* scratch)

// For parts of a sequence that run at the same time: what a segment adds to the states (advance), and to the gradients
// of the states before it (retreat), from nothing unless it is the first, or the last.
FEM_DECLARE_KERNEL(void, advance, const Forward&, const Segment&, Heads, float* states, float* scratch)
FEM_DECLARE_KERNEL(void, retreat, const Backward&, const Segment&, Heads, float* grad_states, float* scratch)
// to += decay of the segment * from, all [H, state]
FEM_DECLARE_KERNEL(void, join, const Arguments&, const Segment&, Heads, float* to, const float* from)

}  // namespace fem::linear_kernels
