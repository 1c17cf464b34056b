#include "data/sampler.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "util/check.h"
#include "util/hash.h"

namespace fem {
namespace {

// Rows of length tokens one after another, the last one perhaps cut short.
PackedRows packed(const at::Tensor& tokens, const at::Tensor& targets, int64_t length, int64_t separator) {
  at::Tensor begins = tokens == separator;
  begins.slice(0, 0, std::nullopt, length).fill_(true);
  const at::Tensor end = at::full({1}, tokens.numel(), at::kLong);
  return {tokens.unsqueeze(0), targets.unsqueeze(0), at::cat({begins.nonzero().flatten(), end})};
}

// One row less than would fit, so that every epoch can begin anywhere in the first row.
int64_t rows_per_epoch_of(const TokenStream& stream, int64_t length) {
  FEM_CHECK(length >= 1, "sampler: expected rows of at least one token, got ", length);
  FEM_CHECK(stream.size() > length, "sampler: a row of ", length, " tokens needs ", length + 1, ", but the text has ",
            stream.size(), "; give more text or shorter rows");
  return std::max<int64_t>((stream.size() - length) / length, 1);
}

}  // namespace

Sampler::Sampler(const TokenStream& stream, int64_t length, uint64_t seed)
    : stream_(stream), length_(length), rows_(rows_per_epoch_of(stream, length)), order_(rows_, seed) {}

int64_t Sampler::begin_of(int64_t row) const {
  const auto [item, epoch_seed] = order_.of(row);
  const int64_t spare = stream_.size() - 1 - rows_ * length_;
  const auto places = static_cast<uint64_t>(std::min(spare, length_ - 1) + 1);
  return static_cast<int64_t>(splitmix64(epoch_seed) % places) + item * length_;
}

PackedRows Sampler::rows(int64_t first, int64_t count, int64_t stride) const {
  FEM_CHECK(count >= 1 && stride >= 1, "sampler: expected at least one row and a stride from 1, got ", count, " and ",
            stride);
  const at::Tensor rows = at::empty({count, length_ + 1}, at::kLong);
  for (int64_t r = 0; r < count; ++r) rows[r].copy_(stream_.read(begin_of(first + r * stride), length_ + 1));
  const at::Tensor tokens = rows.slice(1, 0, length_).reshape(-1), targets = rows.slice(1, 1).reshape(-1);
  return packed(tokens, targets, length_, stream_.separator());
}

PackedRows packed_rows(const TokenStream& stream, int64_t begin, int64_t count, int64_t length) {
  FEM_CHECK(length >= 1 && count >= 1, "sampler: expected at least one token and rows of at least one, got ", count,
            " and ", length);
  const at::Tensor tokens = stream.read(begin, count + 1);
  return packed(tokens.slice(0, 0, count), tokens.slice(0, 1), length, stream.separator());
}

}  // namespace fem
