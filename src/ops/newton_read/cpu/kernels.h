// What the newton_read kernels are given: raw pointers and sizes, no torch.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/rows.h"

namespace fem::newton_kernels {

using cpu::Rows;

struct Arguments {
  bool bfloat16;   // else float32
  bool of_values;  // u = v, else u = k
  int64_t batch, heads, queries, keys, key_width, value_width;
  float scale, rho;
  Rows query, key, value;
  const float* alpha;                  // [H]
  const int32_t *key_begin, *key_end;  // [Tq] query t sees keys [begin, end), neither of which decreases with t
  const bool* key_mask;                // [B, Tk] of real tokens, or null
  float* packed;                       // [B H, head_floats] keys and values as the tiles want them (pack_heads)

  int64_t space_width() const { return of_values ? value_width : key_width; }
};

struct Forward : Arguments {
  void* read;             // [B, Tq, H, V]
  float* mean;            // [B, Tq, H, K or V] m
  float* log_normalizer;  // [B, Tq, H]
};

struct Backward : Arguments {
  Rows grad_read;
  const float *mean, *log_normalizer;        // as forward wrote them
  void *grad_query, *grad_key, *grad_value;  // contiguous
};

constexpr int64_t kQueries = 48;  // of a block: whole tiles on every instruction set

// A head is one of B H. pack_heads comes first, then forward over blocks of kQueries queries.
FEM_DECLARE_KERNEL(int64_t, head_floats, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, pack_floats, const Arguments&)
FEM_DECLARE_KERNEL(void, pack_heads, const Arguments&, int64_t head, float* scratch)
FEM_DECLARE_KERNEL(int64_t, forward_floats, const Arguments&)
FEM_DECLARE_KERNEL(void, forward, const Forward&, int64_t head, int64_t block, float* scratch)

// A few queries over many keys, which are read in place. Of one head; no keys are packed.
FEM_DECLARE_KERNEL(int64_t, step_floats, const Arguments&)
FEM_DECLARE_KERNEL(void, step, const Forward&, int64_t head, float* scratch)

// Backward of the blocks [begin, end) writes their dquery and adds to sums [sums_floats], set to 0 by the caller: dkey
// and dvalue of all keys of the head, and dalpha. write_sums adds those of several parts, in order, and writes dkey and
// dvalue; the result is dalpha.
FEM_DECLARE_KERNEL(int64_t, sums_floats, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, backward_floats, const Arguments&)
FEM_DECLARE_KERNEL(void, backward, const Backward&, int64_t head, int64_t begin, int64_t end, float* sums,
                   float* scratch)
FEM_DECLARE_KERNEL(float, write_sums, const Backward&, int64_t head, const float* sums, int64_t parts)

}  // namespace fem::newton_kernels
