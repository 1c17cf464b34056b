// What the softmax_read kernels are given: raw pointers and sizes, no torch.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/rows.h"

namespace fem::softmax_kernels {

using cpu::Rows;
struct MatrixUnit;

// As Rows, to be written.
struct OutputRows {
  void* data;
  int64_t batch, token, head;
};

// What is added to the score of query t and key i.
struct Bias {
  const float* values;  // [H or 1, Tq, Tk], or null
  int64_t head;         // from one head to the next, 0: the same for all
  const float* slopes;  // [H], or null: - slope |t + offset - i|
  int64_t offset;       // position of the first query among the keys
};

struct Arguments {
  bool bfloat16;  // else float32
  int64_t batch, heads, queries, keys, key_width, value_width;
  float scale;
  Rows query, key, value;
  const float* beta;  // [H, V], null: mean only
  Bias bias;
  const int32_t *key_begin, *key_end;      // [Tq] query t sees keys [begin, end) ...
  const int32_t *query_begin, *query_end;  // [Tk] ... and key i is seen by queries [begin, end); backward only
  const bool* key_mask;                    // [B, Tk] of real tokens, or null
  const MatrixUnit* unit;                  // for bfloat16, or null: then the kernels of namespace bf16 cannot run
  float* offset;                           // [B, H, V] o of what is mixed, [v, exp(beta v) - o], or null: 0
};

struct Forward : Arguments {
  float* keys_packed;     // [B, H, Tk, K] rows of keys, contiguous (pack_keys)
  float* mixed;           // panels of [v, exp(beta v) - o] of every key block (pack_keys)
  float* largest;         // [items of pack_keys] largest |beta v|
  void* mean;             // [B, Tq, H, V]
  float* free_energy;     // [B, Tq, H, V] or null
  float* log_normalizer;  // [B, Tq, H]
};

struct Backward : Arguments {
  Rows mean, grad_mean;
  Rows free_energy, grad_free_energy;  // float32
  const float* log_normalizer;         // [B, Tq, H]
  OutputRows grad_query, grad_key, grad_value;
  float* grad_bias;  // [H or 1, Tq, Tk] added to, or null
};

struct Blocks {
  int64_t queries, keys;  // a block's size
  int64_t scratch;        // floats a thread needs
};

// Forward: pack_keys over (batch, head, key block), then forward over (batch, head, query block).
FEM_DECLARE_KERNEL(Blocks, forward_blocks, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, mixed_block_floats, const Arguments&)
FEM_DECLARE_KERNEL(void, pack_keys, const Forward&, int64_t begin, int64_t end)
FEM_DECLARE_KERNEL(void, forward, const Forward&, int64_t begin, int64_t end, float* scratch)

// A few queries over many keys: bound by reading the keys and values once. step over (batch, part of the keys), then
// finish_step. Writes largest [B, parts, Tq, H]; sums is memory of [B, parts, Tq, H, step_floats].
FEM_DECLARE_KERNEL(int64_t, step_floats, const Arguments&)
FEM_DECLARE_KERNEL(void, step, const Forward&, int64_t parts, int64_t begin, int64_t end, float* sums)
FEM_DECLARE_KERNEL(void, finish_step, const Forward&, int64_t parts, float* sums)

// Backward of one (batch, head): gather_rows and grad_beta_of_queries once, then key blocks [begin, end) in any split.
// Sums of scaled dquery go to grad_query [Tq, padded K] and of dbeta to grad_beta [V], both set to 0 by the caller.
struct GatheredRows {
  float* query;       // [Tq, K] rows, scaled
  float* gradients;   // [Tq, mixed width] rows [dmean, dz], scaled
  float* correction;  // [Tq] sum_i p dp, scaled
};
struct HeadScratch : GatheredRows {
  float* grad_query;  // [Tq, padded K]
  float* grad_beta;   // [V] or null
  float* tiles;       // Blocks::scratch floats
};
FEM_DECLARE_KERNEL(Blocks, backward_blocks, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, padded_key_width, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, gradient_row_width, const Arguments&)
// Rows [begin, end), both multiples of kGatherStep or the last row's end.
constexpr int64_t kGatherStep = 64;
FEM_DECLARE_KERNEL(void, gather_rows, const Backward&, int64_t head, int64_t begin, int64_t end, const GatheredRows&)
// grad_beta -= sum_t dF F / beta, whatever the dtype.
FEM_DECLARE_KERNEL(void, grad_beta_of_queries, const Backward&, int64_t head, float* grad_beta)
FEM_DECLARE_KERNEL(void, backward, const Backward&, int64_t head, int64_t begin, int64_t end, const HeadScratch&)
// dquery of tokens [begin, end) <- scale * sum of the parts, each [Tq, padded K].
FEM_DECLARE_KERNEL(void, write_grad_query, const Backward&, int64_t head, int64_t begin, int64_t end,
                   float* const* parts, int64_t count)

// The same on the matrix unit, bfloat16 only. mixed holds the keys too (keys_packed is not used); a head's memory is
// query_rows long instead of Tq. choose_offsets comes first, over (batch, head).
namespace bf16 {
FEM_DECLARE_KERNEL(void, choose_offsets, const Arguments&, int64_t begin, int64_t end)
FEM_DECLARE_KERNEL(Blocks, forward_blocks, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, mixed_block_floats, const Arguments&)
FEM_DECLARE_KERNEL(void, pack_keys, const Forward&, int64_t begin, int64_t end)
FEM_DECLARE_KERNEL(void, forward, const Forward&, int64_t begin, int64_t end, float* scratch)
FEM_DECLARE_KERNEL(Blocks, backward_blocks, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, query_rows, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, padded_key_width, const Arguments&)
FEM_DECLARE_KERNEL(int64_t, gradient_row_width, const Arguments&)
FEM_DECLARE_KERNEL(void, gather_rows, const Backward&, int64_t head, int64_t begin, int64_t end, const GatheredRows&)
FEM_DECLARE_KERNEL(void, backward, const Backward&, int64_t head, int64_t begin, int64_t end, const HeadScratch&)
FEM_DECLARE_KERNEL(void, write_grad_query, const Backward&, int64_t head, int64_t begin, int64_t end,
                   float* const* parts, int64_t count)
}  // namespace bf16

}  // namespace fem::softmax_kernels
