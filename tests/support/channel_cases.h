// The cases on which channel_read is tested, and how it is run on them.
#pragma once

#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <map>

#include "ops/channel_read/channel_read.h"
#include "support/tolerance.h"

namespace fem::testing::channel {

using ChannelInputs = ChannelScanOp::Inputs;

struct Case {
  std::string name;
  int64_t batch, tokens, heads, width;
  bool weights, decays;
  bool masked = false;
  std::vector<int64_t> cu_seqlens = {};
  bool initial = false, strict = false, mean_only = false;
};

inline const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"aft_one_token", 2, 1, 2, 3, true, false},
      {"decay_one_token", 2, 1, 2, 3, false, true},
      {"aft_T63_odd_width", 2, 63, 3, 7, true, false},
      {"decay_T63_odd_width", 2, 63, 3, 7, false, true},
      {"both_T64", 2, 64, 2, 20, true, true},
      {"aft_T65", 1, 65, 1, 64, true, false},
      {"decay_T65_initial", 3, 65, 2, 9, false, true, false, {}, true},
      {"aft_T111", 1, 111, 2, 20, true, false},
      {"aft_T1000", 1, 1000, 1, 5, true, false},
      {"decay_T1000", 1, 1000, 1, 5, false, true},
      {"both_T1000_initial", 1, 1000, 1, 5, true, true, false, {}, true},
      {"aft_masked", 3, 130, 2, 9, true, false, true},
      {"decay_masked_initial", 3, 130, 2, 9, false, true, true, {}, true},
      {"both_masked_strict", 2, 150, 1, 9, true, true, true, {}, true, true},
      {"aft_strict", 2, 70, 2, 8, true, false, false, {}, false, true},
      {"decay_strict", 2, 129, 1, 33, false, true, false, {}, false, true},
      {"aft_packed", 1, 300, 2, 5, true, false, false, {0, 3, 3, 200, 300}},
      {"decay_packed_initial", 1, 300, 2, 5, false, true, false, {0, 0, 64, 65, 300}, true},
      {"both_packed_masked_strict_initial", 1, 250, 2, 6, true, true, true, {0, 100, 101, 101, 250}, true, true},
      {"aft_mean_only", 2, 100, 2, 17, true, false, false, {}, true, false, true},
      {"decay_mean_only", 2, 100, 2, 17, false, true, true, {}, false, true, true},
      {"one_channel", 1, 70, 1, 1, true, true},
  };
  return all;
}

inline at::Tensor normal(at::IntArrayRef shape) { return at::randn(shape, at::kFloat).to(at::kDouble); }

// Random inputs in float64; drawn in float32 so that casting to it loses nothing.
inline ChannelInputs make_inputs(const Case& c) {
  const std::vector<int64_t> shape{c.batch, c.tokens, c.heads, c.width};
  ChannelInputs in{};
  in.value = normal(shape);
  if (!c.mean_only) in.beta = at::rand({c.heads, c.width}).to(at::kDouble) * 3 + 0.25;
  if (c.weights) in.log_weight = 2 * normal(shape);
  // From tokens that forget at once to tokens that hardly forget.
  if (c.decays) in.log_decay = -at::exp(2 * normal(shape) - 2).to(at::kFloat).to(at::kDouble);
  if (c.masked) in.key_mask = at::rand({c.batch, c.tokens}) > 0.3;
  if (!c.cu_seqlens.empty()) in.cu_seqlens = at::tensor(c.cu_seqlens, at::kLong);
  if (c.initial) {
    const int64_t rows = c.cu_seqlens.empty() ? c.batch : static_cast<int64_t>(c.cu_seqlens.size()) - 1;
    at::Tensor state = normal({rows, c.mean_only ? 3 : 4, c.heads, c.width});
    state.slice(1, 1, 2).copy_(state.slice(1, 1, 2).abs() + 0.5);
    if (!c.mean_only) state.slice(1, 3, 4).copy_(state.slice(1, 3, 4).abs() + 0.5);
    in.initial = state.to(at::kFloat).to(at::kDouble);
  }
  in.strict = c.strict;
  return in;
}

inline ChannelInputs cast(const ChannelInputs& in, at::ScalarType dtype) {
  ChannelInputs out = in;
  const auto leaf = [](const at::Tensor& x, at::ScalarType type) {
    return x.detach().to(type).clone().requires_grad_();
  };
  out.value = leaf(in.value, dtype);
  for (auto part : {&ChannelInputs::beta, &ChannelInputs::log_weight, &ChannelInputs::log_decay})
    if (in.*part) out.*part = leaf(*(in.*part), dtype);
  if (in.initial) out.initial = leaf(*in.initial, dtype == at::kDouble ? at::kDouble : at::kFloat);
  return out;
}

inline RecurrentRead by_operator(const ChannelInputs& in) {
  return read_of(call<ChannelScanOp>(in), in.beta.has_value());
}

inline RecurrentRead by_definition(const ChannelInputs& in) {
  return read_of(ChannelScanOp::definition(in), in.beta.has_value());
}

inline RecurrentReadOptions options_of(const ChannelInputs& in, bool causal = true) {
  return {causal, in.key_mask, in.cu_seqlens, in.initial};
}
inline RecurrentRead by_function(const ChannelInputs& in, bool causal = true) {
  return channel_read(in.value, in.beta, in.log_weight, in.log_decay, options_of(in, causal));
}

struct Result {
  RecurrentRead read;
  std::map<std::string, at::Tensor> gradients;
};

// Gradients for every output, of unit size; those of a log-normaliser that is -inf must not matter.
inline RecurrentRead random_gradients(const RecurrentRead& like) {
  const auto random = [](const at::Tensor& x) { return x.defined() ? normal(x.sizes()) : x; };
  return {{random(like.mean), random(like.free_energy)}, random(like.log_normalizer), random(like.state)};
}

template <typename Function>
Result run(Function&& function, const ChannelInputs& in, const RecurrentRead& grads) {
  Result result{function(in), {}};
  std::vector<at::Tensor> outputs, seeds, wrt;
  const auto seed = [&](const at::Tensor& output, const at::Tensor& grad) {
    if (!output.defined() || !grad.defined() || !output.requires_grad()) return;
    outputs.push_back(output);
    seeds.push_back(grad.to(output.scalar_type()));
  };
  seed(result.read.mean, grads.mean);
  if (in.beta) seed(result.read.free_energy, grads.free_energy);
  seed(result.read.log_normalizer, grads.log_normalizer);
  seed(result.read.state, grads.state);
  std::vector<std::string> names;
  const auto want = [&](const char* name, const OptionalTensor& x) {
    if (!x) return;
    names.push_back(name);
    wrt.push_back(*x);
  };
  want("value", in.value);
  want("beta", in.beta);
  want("log_weight", in.log_weight);
  want("log_decay", in.log_decay);
  want("initial", in.initial);
  const auto gradients = torch::autograd::grad(outputs, wrt, seeds);
  for (size_t i = 0; i < names.size(); ++i) result.gradients[names[i]] = gradients[i];
  return result;
}

inline void expect_same(const Result& actual, const Result& expected, const ChannelInputs& exact,
                        const RecurrentRead& grads, at::ScalarType dtype) {
  const Tolerance forward = forward_tolerance(dtype), sums = dtype == at::kDouble ? kFloat64 : kFloat32;
  EXPECT_TRUE(close(actual.read.mean, expected.read.mean, forward)) << "mean";
  if (exact.beta) {
    EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, forward)) << "free energy";
  }
  // Nothing decays before a token that is alone, and its weight is 1 unless one is given.
  const bool alone = exact.value.size(1) == 1 && !exact.initial;
  EXPECT_TRUE(alone && !exact.log_weight ? vanishes(actual.read.log_normalizer, sums, 1)
                                         : close(actual.read.log_normalizer, expected.read.log_normalizer, sums))
      << "log-normaliser";
  if (expected.read.state.defined()) {
    EXPECT_TRUE(close(actual.read.state, expected.read.state, sums)) << "state";
  }
  for (const auto& [name, gradient] : expected.gradients) {
    if (alone && name == "log_decay") {
      EXPECT_TRUE(vanishes(actual.gradients.at(name), gradient_tolerance(dtype), 1)) << name;
      continue;
    }
    // That of beta is a difference of two sums of this size.
    const double magnitude =
        name == "beta"
            ? (grads.free_energy * expected.read.free_energy / *exact.beta).abs().sum({0, 1}).max().item<double>()
            : 0;
    EXPECT_TRUE(close(actual.gradients.at(name), gradient, gradient_tolerance(dtype), magnitude)) << name;
  }
}

}  // namespace fem::testing::channel
