// What the reads of the linear-time priors share: checks, and the encoder's two directions.
#pragma once

#include <ATen/ATen.h>

#include "fem/ops/read.h"
#include "ops/operator.h"

namespace fem {

// What every causal scan returns. free_energy has no elements without beta; checkpoints are states that the kernels'
// backward starts from. Of bfloat16 inputs all but mean are float32: backward and the merging of two directions need F
// as it was computed.
struct ScanReads {
  at::Tensor mean, free_energy, log_normalizer, state, checkpoints;
  FEM_FIELDS(mean, free_energy, log_normalizer, state, checkpoints)
};
// On devices without kernels, scans work on portions of tokens that keep about this many numbers, so that memory beyond
// inputs and outputs has a bound.
constexpr int64_t kPortionMemory = 1 << 26;

inline RecurrentRead read_of(const ScanReads& scan, bool with_beta) {
  return {{scan.mean, with_beta ? scan.free_energy : at::Tensor()}, scan.log_normalizer, scan.state};
}

// How many states there are.
inline c10::SymInt sequence_count(const at::Tensor& value, const OptionalTensor& cu_seqlens) {
  return cu_seqlens ? cu_seqlens->sym_size(0) - 1 : value.sym_size(0);
}

// value [B, T, H, V] of a supported dtype; beta [H, V], key_mask [B, T] and cu_seqlens [n + 1] (B = 1) to match.
void check_recurrent(const char* op, const at::Tensor& value, const OptionalTensor& beta,
                     const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens);

// One direction of a read. The backward one is the causal form on the reversed sequence without the token itself.
struct Direction {
  bool backward;
  RecurrentReadOptions options;

  bool strict() const { return backward; }  // i < t instead of i <= t
  at::Tensor reversed(const at::Tensor& x) const { return backward && x.defined() ? x.flip(1) : x; }
  OptionalTensor reversed(const OptionalTensor& x) const { return x ? OptionalTensor(reversed(*x)) : x; }
};

Direction backward_direction(const RecurrentReadOptions& options, const at::Tensor& value, const char* op);

// The read over the union of two disjoint sets of tokens. F is float32 at least: what is merged is e^{beta F}, and of F
// in bfloat16 that is off by 16 % at the cap, F itself by 2^-9 / beta at small beta.
RecurrentRead merge(const RecurrentRead& a, const RecurrentRead& b, const OptionalTensor& beta);

// A read as a registered operator returns it: what is not there has no elements.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> as_tuple(const RecurrentRead& read);

// mean and F in dtype, as users see them: scans leave F, and merge both, in float32 where the inputs are bfloat16.
RecurrentRead rounded(RecurrentRead read, at::ScalarType dtype);

// The definition as users call it: refuses what the operator refuses.
template <typename Op>
ScanReads checked_definition(const typename Op::Inputs& in) {
  Op::check(in);
  return Op::definition(in);
}

// scan(inputs(direction)), once for a causal read, else from both sides. scan: an operator's call or its definition.
template <typename Inputs, typename MakeInputs>
RecurrentRead read_in_directions(const char* op, ScanReads (*scan)(const Inputs&), const at::Tensor& value,
                                 const OptionalTensor& beta, const RecurrentReadOptions& options, MakeInputs&& inputs) {
  const auto read = [&](const Direction& d) { return read_of(scan(inputs(d)), beta.has_value()); };
  const RecurrentRead forward = read({false, options});
  const at::ScalarType dtype = forward.mean.scalar_type();
  if (options.causal) return rounded(forward, dtype);
  const Direction d = backward_direction(options, value, op);
  const RecurrentRead backward = read(d);
  const RecurrentRead in_order{
      {d.reversed(backward.mean), d.reversed(backward.free_energy)}, d.reversed(backward.log_normalizer), {}};
  return rounded(merge(forward, in_order, beta), dtype);
}

}  // namespace fem
