#include "fem/ops/ssm_read.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/kernel_test.h"
#include "support/ssm_cases.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using SsmRead = KernelTest;
FEM_ON_EVERY_ISA(SsmRead);

// The read under test; strict ones are the operator's own.
RecurrentRead read(const SsmInputs& in) {
  if (!in.strict) return ssm_read(in.value, in.beta, in.ssm, in.options);
  return read_of(call<SsmScanOp>(in.scan()), in.beta.has_value());
}
RecurrentRead definition(const SsmInputs& in) {
  return in.strict ? read(in) : ssm_read_definition(in.value, in.beta, in.ssm, in.options);
}

struct Result {
  std::vector<at::Tensor> outputs;    // mean, log_normalizer, then state if causal, free_energy if there is beta
  std::vector<at::Tensor> gradients;  // in the order of kSsmInputNames
};

std::vector<at::Tensor> outputs_of(const RecurrentRead& r) {
  std::vector<at::Tensor> outputs{r.mean, r.log_normalizer};
  if (r.state.defined()) outputs.push_back(r.state);
  if (r.free_energy.defined()) outputs.push_back(r.free_energy);
  return outputs;
}

// The outputs, and the gradients of sum_k <seeds_k, outputs_k>; fewer seeds than outputs are of the first ones.
Result run(const RecurrentRead& r, const SsmInputs& in, const std::vector<at::Tensor>& seeds) {
  Result result{outputs_of(r), {}};
  std::vector<at::Tensor> roots, cotangents;
  for (size_t i = 0; i < std::min(seeds.size(), result.outputs.size()); ++i) {
    roots.push_back(result.outputs[i]);
    cotangents.push_back(seeds[i].to(result.outputs[i].scalar_type()));
  }
  result.gradients = torch::autograd::grad(roots, in.floating(), cotangents, std::nullopt, false, true);
  for (size_t i = 0; i < result.gradients.size(); ++i)
    if (!result.gradients[i].defined()) result.gradients[i] = at::zeros_like(in.floating()[i]);
  return result;
}

// Random in float64, but exact in dtype.
std::vector<at::Tensor> random_seeds(const SsmInputs& in, at::ScalarType dtype = at::kFloat) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> seeds;
  for (const at::Tensor& x : outputs_of(read(in))) seeds.push_back(at::randn(x.sizes()).to(dtype).to(at::kDouble));
  return seeds;
}

bool holds(const at::Tensor& condition) { return condition.all().item<bool>(); }

// Whether nothing depends on this input: a strict read has no D, and nothing decays before a token that is alone.
bool has_no_influence(const SsmInputs& in, const std::string& name) {
  return (name == "D" && in.strict) || (name == "A" && in.value.size(1) == 1 && !in.options.initial);
}

// Runs a case by kernel in dtype and by the definition in float64 on the same (rounded) inputs, and compares all.
// The gradient of what faded is beyond float32.
void expect_kernel_equals_definition(const SsmInputs& inputs, at::ScalarType dtype, const std::string& faded = "") {
  const SsmInputs low = cast(inputs, dtype), exact = cast(low, at::kDouble);
  const auto seeds = random_seeds(low, dtype);
  const Result expected = run(definition(exact), exact, seeds), actual = run(read(low), low, seeds);
  ASSERT_EQ(actual.outputs.size(), expected.outputs.size());
  for (size_t i = 0; i < actual.outputs.size(); ++i)
    EXPECT_TRUE(close(actual.outputs[i], expected.outputs[i], forward_tolerance(actual.outputs[i].scalar_type()))) << i;
  for (size_t i = 0; i < actual.gradients.size(); ++i) {
    const std::string name = exact.beta || i < 6 ? kSsmInputNames[i] : "initial";
    SCOPED_TRACE(name);
    if (has_no_influence(exact, name) || name == faded) {
      EXPECT_TRUE(vanishes(actual.gradients[i], gradient_tolerance(dtype), 1));
      EXPECT_TRUE(vanishes(expected.gradients[i], kFloat64, 1));
      continue;
    }
    // That of beta is a difference of two sums of this size.
    const double magnitude =
        exact.beta && i == 6
            ? (seeds.back() * expected.outputs.back() / *exact.beta).abs().sum({0, 1}).max().item<double>()
            : 0;
    EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], gradient_tolerance(dtype), magnitude));
  }
}

TEST_P(SsmRead, Float32MatchesTheDefinition) {
  for (const SsmCase& c : ssm_cases()) {
    SCOPED_TRACE(c.name);
    expect_kernel_equals_definition(make_inputs(c), at::kFloat);
  }
}

TEST_P(SsmRead, Bfloat16MatchesTheDefinition) {
  for (const SsmCase& c : ssm_cases()) {
    SCOPED_TRACE(c.name);
    expect_kernel_equals_definition(make_inputs(c), at::kBFloat16);
  }
}

TEST_P(SsmRead, AnyNumberOfThreadsGivesTheSame) {
  for (const SsmCase& c :
       std::vector<SsmCase>{{"groups", 2, 200, 3, 16, 4},
                            {"runs", 1, 900, 1, 8, 4, true, {}, true},
                            {"runs_without_beta", 1, 900, 1, 3, 2, false, {}, false, true},
                            {"runs_strict", 1, 1100, 1, 5, 3, false, {}, true, false, true, true},
                            {"runs_of_packed", 1, 1500, 1, 5, 3, true, {0, 0, 300, 700, 703, 1500}, true},
                            {"runs_delayed", 1, 1100, 1, 5, 3, false, {}, true, false, true, false, true},
                            {"runs_of_rows", 3, 500, 1, 5, 3, false, {}, true}}) {
    SCOPED_TRACE(c.name);
    const SsmInputs in = cast(make_inputs(c), at::kFloat);
    const auto seeds = random_seeds(in);
    const auto with_threads = [&](int threads) {
      ScopedThreads scope(threads);
      return run(read(in), in, seeds);
    };
    const Result expected = with_threads(1);
    for (const int threads : {2, 3, 5, 8}) {
      SCOPED_TRACE(threads);
      const Result actual = with_threads(threads), again = with_threads(threads);
      for (size_t i = 0; i < expected.outputs.size(); ++i)
        EXPECT_TRUE(close(actual.outputs[i], expected.outputs[i], kFloat32)) << i;
      for (size_t i = 0; i < expected.gradients.size(); ++i) {
        if (has_no_influence(in, kSsmInputNames[i])) continue;
        EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], kFloat32Gradient)) << kSsmInputNames[i];
        EXPECT_TRUE(at::equal(actual.gradients[i], again.gradients[i])) << "a second run differs";
      }
    }
  }
}

TEST_P(SsmRead, StridedInputsGiveTheSame) {
  const SsmInputs in = cast(make_inputs({"", 2, 70, 3, 8, 4}), at::kFloat);
  const auto seeds = random_seeds(in);
  const Result expected = run(read(in), in, seeds);
  const auto every_second = [](const at::Tensor& x) {
    return at::stack({x, x}, -1).flatten(-2).slice(-1, 0, std::nullopt, 2);
  };
  SsmInputs strided = in;
  strided.value = at::cat({in.value, in.value}, 1).slice(1, 0, 70);
  strided.ssm.delta = in.ssm.delta.transpose(1, 2).contiguous().transpose(1, 2);
  strided.ssm.A = in.ssm.A.transpose(0, 2).contiguous().transpose(0, 2);
  strided.ssm.B = at::cat({in.ssm.C, in.ssm.B}, 2).slice(2, 4, 8);
  strided.ssm.C = every_second(in.ssm.C);
  strided.beta = every_second(*in.beta);
  Result actual = run(read(strided), in, seeds);
  for (size_t i = 0; i < expected.outputs.size(); ++i) EXPECT_TRUE(at::equal(actual.outputs[i], expected.outputs[i]));
  for (size_t i = 0; i < expected.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i])) << kSsmInputNames[i];
}

TEST_P(SsmRead, AbsentGradientsCountAsZero) {
  const SsmInputs in = cast(make_inputs({"", 2, 140, 2, 5, 3, true, {}, true}), at::kFloat);
  const auto seeds = random_seeds(in);
  auto padded = seeds;
  for (size_t i = 1; i < padded.size(); ++i) padded[i].zero_();
  const Result mean_only = run(read(in), in, {seeds[0]}), expected = run(read(in), in, padded);
  for (size_t i = 0; i < expected.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(mean_only.gradients[i], expected.gradients[i])) << kSsmInputNames[i];
}

TEST_P(SsmRead, EmptyInputsPassTheStateOn) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const auto& [batch, tokens] : std::vector<std::array<int64_t, 2>>{{0, 5}, {2, 0}}) {
      for (const bool initial : {false, true}) {
        const SsmInputs in = cast(make_inputs({"", batch, tokens, 2, 3, 4, false, {}, initial}), dtype);
        const Result result = run(read(in), in, random_seeds(in));
        EXPECT_EQ(result.outputs[0].sizes(), (at::IntArrayRef{batch, tokens, 2, 3}));
        EXPECT_EQ(result.outputs[3].sizes(), result.outputs[0].sizes());
        EXPECT_EQ(result.outputs[2].sizes(), (at::IntArrayRef{batch, 3, 2, 3, 4}));
        EXPECT_TRUE(at::equal(result.outputs[2], initial ? *in.options.initial : at::zeros_like(result.outputs[2])));
        for (size_t i = 0; i < 7; ++i) EXPECT_TRUE(holds(result.gradients[i] == 0)) << kSsmInputNames[i];
      }
    }
  }
}

TEST_P(SsmRead, AnySplitWithTheStatePassedOnEqualsOneCall) {
  at::NoGradGuard no_grad;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const SsmInputs in = cast(make_inputs({"", 2, 300, 2, 9, 4, true, {}, true}), dtype);
    const RecurrentRead whole = read(in);
    std::vector<at::Tensor> means, energies, normalizers;
    SsmInputs part = in;
    for (int64_t at = 0, step = 1; at < 300; at += step, step = step * 2 + 1) {
      const auto cut = [&](const at::Tensor& x) { return x.slice(1, at, std::min<int64_t>(at + step, 300)); };
      part.value = cut(in.value);
      part.ssm = {cut(in.ssm.delta), in.ssm.A, cut(in.ssm.B), cut(in.ssm.C), in.ssm.D};
      part.options.key_mask = cut(*in.options.key_mask);
      const RecurrentRead r = read(part);
      part.options.initial = r.state;
      means.push_back(r.mean);
      energies.push_back(r.free_energy);
      normalizers.push_back(r.log_normalizer);
    }
    EXPECT_TRUE(close(at::cat(means, 1), whole.mean, forward_tolerance(dtype)));
    EXPECT_TRUE(close(at::cat(energies, 1), whole.free_energy, forward_tolerance(dtype)));
    EXPECT_TRUE(close(at::cat(normalizers, 1), whole.log_normalizer, forward_tolerance(dtype)));
    EXPECT_TRUE(close(*part.options.initial, whole.state, forward_tolerance(dtype)));
  }
}

TEST_P(SsmRead, PackedSequencesReadAsIfAlone) {
  at::NoGradGuard no_grad;
  const std::vector<int64_t> borders{0, 1, 140, 140, 300};
  for (const bool causal : {true, false}) {
    const SsmInputs in = cast(make_inputs({"", 1, 300, 2, 9, 4, false, borders, causal, false, causal}), at::kFloat);
    const RecurrentRead packed = read(in);
    for (int64_t n = 0; n < 4; ++n) {
      if (borders[n] == borders[n + 1]) continue;
      const auto cut = [&](const at::Tensor& x) { return x.slice(1, borders[n], borders[n + 1]); };
      SsmInputs alone{
          cut(in.value), in.beta, {cut(in.ssm.delta), in.ssm.A, cut(in.ssm.B), cut(in.ssm.C), in.ssm.D}, {}};
      alone.options.causal = causal;
      if (causal) alone.options.initial = in.options.initial->slice(0, n, n + 1);
      const RecurrentRead r = read(alone);
      EXPECT_TRUE(at::equal(cut(packed.mean), r.mean));
      EXPECT_TRUE(at::equal(cut(packed.free_energy), r.free_energy));
      EXPECT_TRUE(!causal || at::equal(packed.state[n], r.state[0]));
    }
  }
}

TEST_P(SsmRead, WhatMaskedTokensHoldHasNoInfluenceEvenNaN) {
  for (const bool causal : {true, false}) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      SsmInputs in = cast(make_inputs({"", 2, 140, 2, 5, 3, true, {}, false, false, causal}), dtype);
      const auto seeds = random_seeds(in);
      const Result expected = run(read(in), in, seeds);
      const at::Tensor hidden = in.options.key_mask->logical_not();
      const auto poisoned = [&](const at::Tensor& x) {
        std::vector<int64_t> shape(x.dim(), 1);
        shape[0] = 2, shape[1] = 140;
        return x.detach().masked_fill(hidden.view(shape), NAN).requires_grad_();
      };
      in.value = poisoned(in.value);
      in.ssm.delta = poisoned(in.ssm.delta);
      in.ssm.B = poisoned(in.ssm.B);
      const Result actual = run(read(in), in, seeds);
      for (size_t i = 0; i < expected.outputs.size(); ++i)
        EXPECT_TRUE(at::equal(actual.outputs[i], expected.outputs[i])) << i;
      for (size_t i = 0; i < expected.gradients.size(); ++i)
        EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i])) << kSsmInputNames[i];
      for (const size_t i : {0, 1, 3})
        EXPECT_TRUE(holds(actual.gradients[i].index({hidden}) == 0)) << kSsmInputNames[i];
    }
  }
}

TEST_P(SsmRead, FullyMaskedRowsReadZeroWithZeroGradients) {
  for (const bool causal : {true, false}) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      SsmInputs in = cast(make_inputs({"", 2, 140, 2, 5, 3, false, {}, false, false, causal}), dtype);
      in.options.key_mask = at::ones({2, 140}, at::kBool);
      in.options.key_mask->select(0, 1).zero_();
      const Result result = run(read(in), in, random_seeds(in));
      EXPECT_TRUE(holds(result.outputs[0][1] == 0) && holds(result.outputs.back()[1] == 0));
      EXPECT_TRUE(holds(result.outputs[1][1] == -INFINITY));
      for (const size_t i : {0, 1, 3, 4}) EXPECT_TRUE(holds(result.gradients[i][1] == 0)) << kSsmInputNames[i];
      for (const at::Tensor& gradient : result.gradients) EXPECT_TRUE(holds(gradient.isfinite()));
    }
  }
}

TEST_P(SsmRead, FutureTokensHaveNoInfluenceAndNoGradient) {
  const int64_t length = 300, now = 171;
  SsmInputs in = cast(make_inputs({"", 1, length, 2, 8, 4}), at::kFloat);
  auto seeds = random_seeds(in);
  for (const size_t i : {0, 1, 3}) seeds[i].slice(1, now).zero_();
  seeds[2].zero_();
  const Result before = run(read(in), in, seeds);
  for (const size_t i : {0, 1, 3, 4}) EXPECT_TRUE(holds(before.gradients[i].slice(1, now) == 0)) << kSsmInputNames[i];
  const auto changed = [&](const at::Tensor& x) {
    const at::Tensor y = x.detach().clone();
    y.slice(1, now).uniform_();
    return y;
  };
  in.value = changed(in.value);
  in.ssm.delta = changed(in.ssm.delta);
  in.ssm.B = changed(in.ssm.B);
  in.ssm.C = changed(in.ssm.C);
  const auto after = outputs_of(read(in));
  for (const size_t i : {0, 1, 3}) {
    EXPECT_TRUE(at::equal(after[i].slice(1, 0, now), before.outputs[i].slice(1, 0, now)));
    EXPECT_FALSE(at::equal(after[i].slice(1, now), before.outputs[i].slice(1, now)));
  }
}

TEST_P(SsmRead, NaNReachesTheOutputsItMust) {
  const SsmInputs clean = cast(make_inputs({"", 1, 40, 1, 4, 3}), at::kFloat);
  for (int which = 0; which < 4; ++which) {
    SsmInputs in = clean;
    at::Tensor* const x[] = {&in.value, &in.ssm.delta, &in.ssm.B, &in.ssm.C};
    *x[which] = x[which]->detach().clone();
    x[which]->select(1, 20).fill_(NAN);
    const at::Tensor out = read(in).free_energy;
    EXPECT_TRUE(holds(out.slice(1, 0, 20).isfinite()));
    EXPECT_TRUE(holds(out.slice(1, 20, which == 3 ? 21 : 40).isnan())) << which;
  }
}

TEST_P(SsmRead, ValuesUpToTheCapStayFiniteAndExact) {
  // Every value at plus or minus the cap, and decays so strong that a high value, once seen, fades over a few tokens.
  SsmInputs in = make_inputs({"", 1, 260, 1, 6, 3});
  in.beta = at::full({1, 6}, 2.0, at::kDouble);
  in.value = at::where(at::rand(in.value.sizes()) > 0.02, -20.0, 20.0).to(at::kDouble);
  in.ssm.delta.fill_(1);
  in.ssm.A = -5 * at::ones({1, 6, 3}, at::kDouble);
  expect_kernel_equals_definition(in, at::kFloat);
}

// Values at plus and minus the cap, and a decay of e^rate a token.
SsmInputs fading_inputs(double rate, bool causal, bool strict) {
  SsmInputs in = make_inputs({"", 1, 140, 1, 6, 3, false, {}, false, false, causal, strict});
  in.beta->fill_(2);
  in.value = at::where(at::rand(in.value.sizes()) > 0.5, -20.0, 20.0).to(at::kDouble);
  in.ssm.delta.fill_(1);
  in.ssm.A.fill_(rate);
  return in;
}

TEST_P(SsmRead, DecaysBeyondFloat32sRangeLeaveTheTokenItself) {
  // From the right a token decays before it is read: by e^-60, which e^{beta v} takes out of float32, or e^-120.
  for (const double rate : {-45.0, -60.0, -120.0})
    expect_kernel_equals_definition(fading_inputs(rate, /*causal=*/false, /*strict=*/false), at::kFloat,
                                    /*faded=*/rate < -100 ? "A" : "");
}

TEST_P(SsmRead, StrictReadsThatFadeAwayStayFinite) {
  for (const double rate : {-50.0, -60.0, -70.0, -80.0, -87.0, -100.0}) {
    SCOPED_TRACE(rate);
    const SsmInputs in = cast(fading_inputs(rate, /*causal=*/true, /*strict=*/true), at::kFloat);
    const Result result = run(read(in), in, random_seeds(in));
    for (const size_t i : {0, 3}) EXPECT_LE(result.outputs[i].abs().max().item<double>(), 20 * (1 + kFloat32.bound));
    for (size_t i = 0; i < result.gradients.size(); ++i)
      EXPECT_TRUE(holds(result.gradients[i].isfinite())) << kSsmInputNames[i];
  }
}

TEST_P(SsmRead, MemoriesOfAnyLengthGiveAccurateGradients) {
  // Half-lives from a fraction of a token to far beyond the sequence, side by side.
  SsmInputs in = make_inputs({"", 1, 1000, 1, 4, 3});
  in.ssm.delta = 0.01 * in.ssm.delta;
  in.ssm.A = at::tensor({-1e-5, -1e-2, -1.0, -0.1, -30.0, -1e-3, -300.0, -3.0, -1e-4, -10.0, -100.0, 0.0}, at::kDouble)
                 .view({1, 4, 3});
  expect_kernel_equals_definition(in, at::kFloat);
}

}  // namespace
}  // namespace fem::testing
