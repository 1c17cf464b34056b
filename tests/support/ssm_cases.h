// The shapes on which ssm_read is tested: awkward lengths and widths, every kind of sequence.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "ops/ssm_read/ssm_read.h"

namespace fem::testing {

struct SsmCase {
  std::string name;
  int64_t batch, tokens, heads, width, rank;
  bool masked = false;
  std::vector<int64_t> cu_seqlens = {};
  bool initial = false;
  bool mean_only = false;
  bool causal = true;
  bool strict = false;  // the registered operator's switch: a token does not see itself
  bool delayed = false;
};

inline const std::vector<SsmCase>& ssm_cases() {
  static const std::vector<SsmCase> cases{
      {"one_token", 2, 1, 2, 3, 4},
      {"T63_odd_width", 2, 63, 3, 7, 5},
      {"T64", 1, 64, 2, 8, 16},
      {"T65_two_blocks", 1, 65, 3, 16, 3},
      {"T111", 1, 111, 2, 20, 16},
      {"T128_a_whole_chunk", 2, 128, 1, 5, 2},
      {"T129", 1, 129, 1, 17, 2},
      {"T1000", 1, 1000, 1, 9, 4},
      {"one_wide", 2, 70, 1, 1, 1},
      {"masked", 3, 140, 2, 9, 4, true},
      {"initial", 2, 130, 2, 6, 4, false, {}, true},
      {"masked_initial", 2, 131, 2, 6, 4, true, {}, true},
      {"packed", 1, 500, 2, 6, 4, false, {0, 3, 3, 200, 500}},
      {"packed_masked_initial", 1, 260, 1, 11, 3, true, {0, 0, 100, 101, 260, 260}, true},
      {"mean_only", 2, 150, 2, 9, 4, false, {}, false, true},
      {"mean_only_masked_initial", 2, 140, 1, 20, 4, true, {}, true, true},
      {"encoder", 2, 140, 2, 9, 4, false, {}, false, false, false},
      {"encoder_masked_mean_only", 2, 140, 2, 9, 4, true, {}, false, true, false},
      {"encoder_packed_masked", 1, 250, 2, 6, 3, true, {0, 100, 100, 101, 250}, false, false, false},
      {"strict", 2, 140, 2, 9, 4, false, {}, false, false, true, true},
      {"strict_masked_packed_initial", 1, 260, 1, 11, 3, true, {0, 0, 100, 101, 260}, true, false, true, true},
      {"strict_mean_only", 2, 70, 1, 5, 4, true, {}, true, true, true, true},
      {"delayed", 2, 140, 2, 9, 4, false, {}, false, false, true, false, true},
      {"delayed_one_token", 2, 1, 2, 3, 4, false, {}, true, false, true, false, true},
      {"delayed_masked_initial_mean_only", 2, 131, 1, 20, 3, true, {}, true, true, true, false, true},
      {"delayed_packed_masked_initial",
       1,
       260,
       1,
       11,
       3,
       true,
       {0, 0, 100, 101, 260, 260},
       true,
       false,
       true,
       false,
       true},
      {"delayed_encoder_masked", 2, 140, 2, 9, 4, true, {}, false, false, false, false, true},
      {"delayed_strict", 2, 140, 2, 9, 4, true, {}, true, false, true, true, true},
  };
  return cases;
}

inline const char* kSsmInputNames[] = {"value", "delta", "A", "B", "C", "D", "beta", "initial"};

struct SsmInputs {
  at::Tensor value;
  std::optional<at::Tensor> beta;
  Ssm ssm;
  RecurrentReadOptions options;
  bool strict = false;

  SsmScanOp::Inputs scan() const {
    return {value,
            beta,
            ssm.delta,
            ssm.A,
            ssm.B,
            ssm.C,
            ssm.D,
            options.initial,
            options.key_mask,
            options.cu_seqlens,
            strict,
            ssm.delayed};
  }

  // In the order of kSsmInputNames, those that are there.
  std::vector<at::Tensor> floating() const {
    std::vector<at::Tensor> all{value, ssm.delta, ssm.A, ssm.B, ssm.C, ssm.D};
    if (beta) all.push_back(*beta);
    if (options.initial) all.push_back(*options.initial);
    return all;
  }
};

// Random inputs of a case in float64; drawn in float32 so that casting to it loses nothing. Decays from e^-3 a token
// to next to none.
inline SsmInputs make_inputs(const SsmCase& c) {
  const auto uniform = [](at::IntArrayRef shape) { return at::rand(shape).to(at::kDouble); };
  SsmInputs in;
  in.value = at::randn({c.batch, c.tokens, c.heads, c.width}).to(at::kDouble);
  in.ssm.delta = uniform({c.batch, c.tokens, c.heads, c.width}).square() + 0.001;
  in.ssm.A = -3 * uniform({c.heads, c.width, c.rank}).pow(3);
  in.ssm.B = uniform({c.batch, c.tokens, c.rank}) + 0.01;
  in.ssm.C = uniform({c.batch, c.tokens, c.rank}) + 0.01;
  in.ssm.D = 0.1 * uniform({c.heads, c.width});
  in.ssm.delayed = c.delayed;
  if (!c.mean_only) in.beta = uniform({c.heads, c.width}) * 3 + 0.25;
  in.options.causal = c.causal;
  in.strict = c.strict;
  if (c.masked) in.options.key_mask = at::rand({c.batch, c.tokens}) > 0.3;
  if (!c.cu_seqlens.empty()) in.options.cu_seqlens = at::tensor(c.cu_seqlens, at::kLong);
  if (c.initial) {
    const int64_t sequences = c.cu_seqlens.empty() ? c.batch : static_cast<int64_t>(c.cu_seqlens.size()) - 1;
    in.options.initial = uniform({sequences, c.mean_only ? 2 : 3, c.heads, c.width, c.rank}) + 0.1;
  }
  return in;
}

inline SsmInputs cast(const SsmInputs& in, at::ScalarType dtype) {
  SsmInputs out = in;
  const auto leaf = [&](const at::Tensor& x) { return x.detach().to(dtype).clone().requires_grad_(); };
  out.value = leaf(in.value);
  out.ssm = {leaf(in.ssm.delta), leaf(in.ssm.A), leaf(in.ssm.B), leaf(in.ssm.C), leaf(in.ssm.D), in.ssm.delayed};
  if (in.beta) out.beta = leaf(*in.beta);
  if (in.options.initial) {
    const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
    out.options.initial = in.options.initial->detach().to(wide).clone().requires_grad_();
  }
  return out;
}

}  // namespace fem::testing
