// Which tokens belong together.
#pragma once

#include <vector>

#include "ops/operator.h"

namespace fem {

// Tokens begin <= t < end of a row of the batch: a whole row, or one of the sequences packed in it.
struct Sequence {
  int64_t batch, begin, end;
};

// cu_seqlens is int32 or int64 [n + 1], and where its numbers are there to be looked at, they run from 0 to length.
void check_borders(const char* op, const at::Tensor& cu_seqlens, const c10::SymInt& length);

// The borders 0 = b_0 <= ... <= b_n = length of packed sequences, checked.
std::vector<int64_t> borders_of(const at::Tensor& cu_seqlens, int64_t length, const char* op);

// One per batch row, or one per packed sequence (empty ones included).
std::vector<Sequence> sequences_of(int64_t batch, int64_t length, const OptionalTensor& cu_seqlens, const char* op);

}  // namespace fem
