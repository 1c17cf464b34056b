#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/order.h"
#include "data/token_stream.h"

namespace fem {

// Some rows of length tokens each, one after another in a single row for the model.
struct PackedRows {
  at::Tensor tokens, targets;  // [1, N] int64; a target is the token after its token
  at::Tensor cu_seqlens;       // [n + 1] int64: every row and every document begins a sequence of its own
};

// Which rows of a stream are read when. Every epoch reads each row once, in an order and from an offset of its own.
class Sampler {
 public:
  Sampler(const TokenStream& stream, int64_t length, uint64_t seed);

  int64_t rows_per_epoch() const { return rows_; }
  int64_t begin_of(int64_t row) const;                                      // where a row begins in the stream
  PackedRows rows(int64_t first, int64_t count, int64_t stride = 1) const;  // first, first + stride, ...

 private:
  const TokenStream& stream_;
  int64_t length_, rows_;
  EpochOrder order_;
};

// Tokens [begin, begin + count) and their targets as one packed row, for reading a stream from its start to its end.
PackedRows packed_rows(const TokenStream& stream, int64_t begin, int64_t count, int64_t length);

}  // namespace fem
