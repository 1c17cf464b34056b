// Causal scans in plain ATen for devices without kernels of their own. Sequences are cut into chunks; what chunks do to
// a state is found for all of them side by side, the states are passed on from chunk to chunk, and then all chunks read
// side by side, each from the state before it. Time and memory are linear in the tokens.
#pragma once

#include <functional>
#include <vector>

#include "ops/recurrent.h"

namespace fem {

// Chunks as rows: what was [B, T, ...] is [rows, tokens of a chunk, ...]. An undefined tensor stays undefined.
struct ChunkRows {
  std::vector<at::Tensor> tokens;      // what a scan is given of every token
  std::vector<at::Tensor> parameters;  // and of none
  OptionalTensor real;                 // [rows, tokens of a chunk] bool: others do not exist. Absent: all do
};

// What a scan consists of. All three are differentiable, in plain ATen.
struct ChunkScan {
  int64_t most_tokens;   // of a chunk
  int64_t token_memory;  // numbers that are kept of a token until it is differentiated, about
  int64_t portion_memory = kPortionMemory;
  // What each row does to a state, whatever the state is: [rows, ...] each.
  std::function<std::vector<at::Tensor>(const ChunkRows&)> summarise;
  // The states [rows, ...] after rows, by those before them and the rows' summaries.
  std::function<at::Tensor(const at::Tensor& before, const std::vector<at::Tensor>& summary)> advance;
  // What the tokens read, [rows, tokens of a chunk, ...] each, by the states before the rows.
  std::function<std::vector<at::Tensor>(const ChunkRows&, const at::Tensor& before)> read;
};

struct ScanInputs {
  std::vector<at::Tensor> tokens;      // [B, T, ...], B and T not 0; undefined: not given
  std::vector<at::Tensor> parameters;  // undefined: not given
  at::Tensor initial;                  // [N, ...] a state for every sequence
  OptionalTensor key_mask, cu_seqlens;
};

struct ScanGradients {
  std::vector<at::Tensor> tokens, parameters;  // undefined for what is not given
  at::Tensor initial;
};

// Without checkpoints.
ScanReads scan_in_chunks(const char* op, const ChunkScan& scan, const ScanInputs& in);

// The gradient, given that of the outputs (undefined: 0): states are found again, then autograd differentiates portion
// by portion, from the last to the first.
ScanGradients gradient_in_chunks(const char* op, const ChunkScan& scan, const ScanInputs& in, const ScanReads& grads);

}  // namespace fem
