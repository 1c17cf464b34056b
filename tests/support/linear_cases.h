// The shapes on which linear_read is tested: awkward lengths and widths, every option.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "ops/linear_read/linear_read.h"

namespace fem::testing {

struct LinearCase {
  std::string name;
  int64_t batch, tokens, heads, key_width, value_width;
  bool decay = true;
  bool masked = false;
  bool initial = false;
  bool strict = false;
  bool mean_only = false;
  std::vector<int64_t> cu_seqlens = {};
};

inline const std::vector<LinearCase>& linear_cases() {
  static const std::vector<LinearCase> cases{
      {"one_token", 2, 1, 2, 4, 3, true, false, true},
      {"few_tokens", 2, 4, 2, 20, 9, true, true, true},
      {"few_tokens_strict", 2, 3, 2, 20, 9, true, false, true, true},
      {"few_tokens_linear", 1, 2, 3, 7, 16, false, false, false},
      {"T63_odd_widths", 2, 63, 3, 30, 7},
      {"T64", 1, 64, 2, 64, 32},
      {"T65_linear", 2, 65, 2, 33, 20, false},
      {"T111", 1, 111, 2, 100, 20},
      {"T111_strict", 1, 111, 2, 100, 20, true, false, false, true},
      {"T111_linear_strict_masked", 2, 111, 2, 9, 20, false, true, false, true},
      {"T1000", 1, 1000, 2, 24, 8},
      {"T2500_over_checkpoints", 1, 2500, 1, 16, 8, true, true, true},
      {"T2500_linear", 1, 2500, 2, 8, 12, false},
      {"masked", 3, 130, 2, 16, 9, true, true},
      {"initial", 2, 200, 2, 16, 9, true, false, true},
      {"initial_linear", 2, 70, 2, 16, 9, false, true, true},
      {"packed", 1, 500, 2, 32, 16, true, false, false, false, false, {0, 3, 3, 200, 500}},
      {"packed_initial_masked", 1, 1300, 2, 8, 6, true, true, true, false, false, {0, 0, 100, 1022, 1025, 1300}},
      {"packed_linear_strict", 1, 250, 2, 8, 6, false, false, false, true, false, {0, 100, 101, 250, 250}},
      {"mean_only", 2, 200, 2, 64, 33, true, false, true, false, true},
      {"mean_only_few_tokens", 2, 2, 2, 64, 33, true, false, true, false, true},
      {"mean_only_linear", 2, 100, 1, 20, 5, false, true, false, false, true},
      {"one_wide", 1, 70, 1, 1, 1},
  };
  return cases;
}

struct LinearInputs : LinearScanOp::Inputs {
  RecurrentReadOptions options(bool causal = true) const { return {causal, key_mask, cu_seqlens, initial}; }
};

// Random inputs of a case in float64; drawn in float32 so that casting to it loses nothing.
inline LinearInputs make_inputs(const LinearCase& c) {
  const auto normal = [](at::IntArrayRef shape) { return at::randn(shape).to(at::kDouble); };
  LinearInputs in{};
  in.query = normal({c.batch, c.tokens, c.heads, c.key_width}).abs();
  in.key = normal({c.batch, c.tokens, c.heads, c.key_width}).abs();
  in.value = normal({c.batch, c.tokens, c.heads, c.value_width});
  if (!c.mean_only) in.beta = at::rand({c.heads, c.value_width}).to(at::kDouble) * 3 + 0.25;
  if (c.decay) in.log_decay = -normal({c.batch, c.tokens, c.heads}).abs() * 0.2;
  if (c.masked) in.key_mask = at::rand({c.batch, c.tokens}) > 0.3;
  if (!c.cu_seqlens.empty()) in.cu_seqlens = at::tensor(c.cu_seqlens, at::kLong);
  if (c.initial) {
    const int64_t sequences = in.cu_seqlens ? in.cu_seqlens->size(0) - 1 : c.batch;
    in.initial = normal({sequences, c.heads, c.key_width, c.value_width * (c.mean_only ? 1 : 2) + 1}).abs();
  }
  in.strict = c.strict;
  return in;
}

// Leaves of the given dtype; the state is never narrower than float32.
inline LinearInputs cast(const LinearInputs& in, at::ScalarType dtype) {
  LinearInputs out = in;
  const auto leaf = [&](const at::Tensor& x) { return x.detach().to(dtype).clone().requires_grad_(); };
  out.query = leaf(in.query);
  out.key = leaf(in.key);
  out.value = leaf(in.value);
  if (in.beta) out.beta = leaf(*in.beta);
  if (in.log_decay) out.log_decay = leaf(*in.log_decay);
  if (in.initial)
    out.initial = in.initial->detach().to(dtype == at::kDouble ? dtype : at::kFloat).clone().requires_grad_();
  return out;
}

inline RecurrentRead by_kernel(const LinearInputs& in) { return read_of(call<LinearScanOp>(in), in.beta.has_value()); }

inline RecurrentRead by_definition(const LinearInputs& in) {
  return read_of(LinearScanOp::definition(in), in.beta.has_value());
}

}  // namespace fem::testing
