// What the reads of the linear-time priors share: checks, and the encoder's two directions.
#pragma once

#include <ATen/ATen.h>

#include "fem/ops/read.h"
#include "ops/operator.h"

namespace fem {

// value [B, T, H, V] of a supported dtype; beta [H, V], key_mask [B, T] and cu_seqlens [n + 1] (B = 1) to match.
void check_recurrent(const char* op, const at::Tensor& value, const OptionalTensor& beta,
                     const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens);

// tensor has the shape (-1: any size), dtype and device of value; the message names both.
void check_like_value(const char* op, const char* name, const at::Tensor& tensor, const at::Tensor& value,
                      const std::vector<c10::SymInt>& shape);

// One direction of a read. The backward one is the causal form on the reversed sequence without the token itself.
struct Direction {
  bool backward;
  RecurrentReadOptions options;

  bool strict() const { return backward; }  // i < t instead of i <= t
  at::Tensor turn(const at::Tensor& x) const { return backward && x.defined() ? x.flip(1) : x; }
  OptionalTensor turn(const OptionalTensor& x) const { return x ? OptionalTensor(turn(*x)) : x; }
};

Direction backward_direction(const RecurrentReadOptions& options, const at::Tensor& value, const char* op);

// The read over the union of two disjoint sets of tokens. F is float32 at least: what is merged is e^{beta F}, and of F
// in bfloat16 that is off by 16 % at the cap, F itself by 2^-9 / beta at small beta.
RecurrentRead merge(const RecurrentRead& a, const RecurrentRead& b, const OptionalTensor& beta);

// A read as a registered operator returns it: what is not there has no elements.
Tensors4 tensors_of(const RecurrentRead& read);

// mean and F in dtype, as users see them: scans leave F, and merge both, in float32 where the inputs are bfloat16.
RecurrentRead rounded(RecurrentRead read, at::ScalarType dtype);

// scan(direction) -> RecurrentRead, once for a causal read, else from both sides.
template <typename Scan>
RecurrentRead read_in_directions(const char* op, const at::Tensor& value, const OptionalTensor& beta,
                                 const RecurrentReadOptions& options, Scan&& scan) {
  const RecurrentRead onward = scan(Direction{false, options});
  const at::ScalarType dtype = onward.mean.scalar_type();
  if (options.causal) return rounded(onward, dtype);
  const Direction direction = backward_direction(options, value, op);
  const RecurrentRead back = scan(direction);
  return rounded(
      merge(onward,
            {{direction.turn(back.mean), direction.turn(back.free_energy)}, direction.turn(back.log_normalizer), {}},
            beta),
      dtype);
}

}  // namespace fem
