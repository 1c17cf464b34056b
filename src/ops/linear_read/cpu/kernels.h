// What the linear_read kernels are given: raw pointers and sizes, no torch.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/rows.h"
#include "cpu/segment.h"

namespace fem::linear_kernels {

using cpu::Groups;
using cpu::Rows;
using cpu::Segment;

struct Arguments {
  bool bfloat16;  // else float32
  bool strict;    // i < t instead of i <= t
  int64_t heads, tokens, key_width, value_width;
  Rows query, key, value;
  Rows log_decay;        // [B, T, H], data null: no decay
  const float* beta;     // [H, V], null: mean only
  const bool* key_mask;  // [B, T] of real tokens, or null
  float* checkpoints;    // [*, H, K, X] states inside sequences, before every group_tokens
  int64_t group_tokens;  // between checkpoints, a multiple of 64
};

struct Forward : Arguments {
  void* mean;             // [B, T, H, V]
  float* free_energy;     // [B, T, H, V] or null
  float* log_normalizer;  // [B, T, H]
};

struct Backward : Arguments {
  Rows mean, free_energy, log_normalizer;    // as forward wrote them; the last two are float32
  Rows grad_mean;                            // data null: none
  Rows grad_free_energy;                     // float32, data null: none
  Rows grad_log_normalizer;                  // float32, data null: none
  void *grad_query, *grad_key, *grad_value;  // [B, T, H, *]
  void* grad_log_decay;                      // [B, T, H] or null
};

// Floats of scratch memory that a thread needs.
FEM_DECLARE_KERNEL(int64_t, forward_scratch, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, backward_scratch, const Arguments&)

// All act on a segment, groups being heads. States and their gradients are [H, K, X]; where they are null nothing is
// before or after, or what comes out is not wanted.

// The reads of a segment and the checkpoints inside it. Returns the largest |beta v|.
FEM_DECLARE_KERNEL(float, forward, const Forward&, const Segment&, Groups, const float* before, float* after,
                   float* scratch)
// The same for a whole sequence of a few tokens: one sweep over the state. V may be at most step_width().
FEM_DECLARE_KERNEL(float, step, const Forward&, const Segment&, Groups, const float* before, float* after)
FEM_DECLARE_KERNEL(int64_t, step_tokens)
FEM_DECLARE_KERNEL(int64_t, step_width)

// The gradients of a segment. Adds to grad_beta [H, V].
FEM_DECLARE_KERNEL(void, backward, const Backward&, const Segment&, Groups, const float* before,
                   const float* grad_after, float* grad_before, double* grad_beta, float* scratch)

// The state after a segment alone, and the gradient of the one before it.
FEM_DECLARE_KERNEL(void, advance, const Forward&, const Segment&, Groups, const float* before, float* after,
                   float* scratch)
FEM_DECLARE_KERNEL(void, retreat, const Backward&, const Segment&, Groups, const float* grad_after, float* grad_before,
                   float* scratch)
// to += decay of the segment * from
FEM_DECLARE_KERNEL(void, join, const Arguments&, const Segment&, Groups, const float* from, float* to)

}  // namespace fem::linear_kernels
