// The shapes on which softmax_read is tested and compared: awkward lengths and widths, every kind of visibility.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "fem/ops/softmax_read.h"

namespace fem::testing {

struct SoftmaxCase {
  std::string name;
  int64_t batch, queries, keys, heads, key_width, value_width;
  bool causal = true;
  std::optional<int64_t> window = std::nullopt;
  bool masked = false;
  std::vector<int64_t> cu_seqlens = {};
  bool mean_only = false;

  bool one_key() const { return keys == 1 || (causal && window == 1); }  // is all that a query sees
};

inline const std::vector<SoftmaxCase>& softmax_cases() {
  static const std::vector<SoftmaxCase> cases{
      {"one_token", 2, 1, 1, 2, 4, 3},
      {"T63_odd_widths", 2, 63, 63, 3, 60, 7},
      {"T111", 1, 111, 111, 2, 100, 20},
      {"T1000", 1, 1000, 1000, 1, 16, 8},
      {"two_blocks_of_queries", 1, 385, 385, 2, 64, 32},
      {"masked", 3, 130, 130, 2, 16, 9, true, std::nullopt, true},
      {"encoder", 2, 111, 111, 2, 12, 10, false},
      {"encoder_masked", 2, 97, 97, 2, 12, 10, false, std::nullopt, true},
      {"window", 1, 300, 300, 2, 33, 5, true, 70},
      {"window_of_one", 1, 40, 40, 1, 8, 4, true, 1},
      {"encoder_window_masked", 2, 200, 200, 1, 8, 4, false, 9, true},
      {"packed", 1, 500, 500, 2, 32, 16, true, std::nullopt, false, {0, 3, 3, 200, 500}},
      {"packed_encoder_masked", 1, 250, 250, 2, 8, 6, false, std::nullopt, true, {0, 100, 101, 250}},
      {"few_queries", 2, 3, 300, 2, 40, 12},
      {"few_queries_masked_window", 2, 4, 300, 2, 40, 11, true, 100, true},
      {"continuation", 2, 50, 333, 2, 24, 8},
      {"more_queries_than_keys", 2, 50, 20, 2, 16, 8},
      {"cross_attention", 2, 65, 257, 1, 16, 8, false},
      {"mean_only", 2, 200, 200, 2, 64, 33, true, std::nullopt, false, {}, true},
      {"mean_only_few_queries", 2, 2, 200, 2, 64, 33, true, std::nullopt, true, {}, true},
      {"one_wide", 1, 70, 70, 1, 1, 1},
  };
  return cases;
}

struct SoftmaxInputs {
  at::Tensor query, key, value;
  std::optional<at::Tensor> beta;
  SoftmaxReadOptions options;
};

// Random inputs of a case in float64; drawn in float32 so that casting to it loses nothing.
inline SoftmaxInputs make_inputs(const SoftmaxCase& c) {
  const auto normal = [](at::IntArrayRef shape) { return at::randn(shape).to(at::kDouble); };
  SoftmaxInputs in;
  in.query = 2 * normal({c.batch, c.queries, c.heads, c.key_width});
  in.key = normal({c.batch, c.keys, c.heads, c.key_width});
  in.value = normal({c.batch, c.keys, c.heads, c.value_width});
  if (!c.mean_only) in.beta = at::rand({c.heads, c.value_width}).to(at::kDouble) * 3 + 0.25;
  in.options.causal = c.causal;
  in.options.window = c.window;
  if (c.masked) in.options.key_mask = at::rand({c.batch, c.keys}) > 0.3;
  if (!c.cu_seqlens.empty()) in.options.cu_seqlens = at::tensor(c.cu_seqlens, at::kLong);
  return in;
}

inline SoftmaxInputs cast(const SoftmaxInputs& in, at::ScalarType dtype) {
  SoftmaxInputs out = in;
  const auto leaf = [&](const at::Tensor& x) { return x.detach().to(dtype).clone().requires_grad_(); };
  out.query = leaf(in.query);
  out.key = leaf(in.key);
  out.value = leaf(in.value);
  if (in.beta) out.beta = leaf(*in.beta);
  if (in.options.bias) out.options.bias = leaf(*in.options.bias);
  if (in.options.slopes) out.options.slopes = in.options.slopes->to(dtype);
  return out;
}

}  // namespace fem::testing
