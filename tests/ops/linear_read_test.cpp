#include "fem/ops/linear_read.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/kernel_test.h"
#include "support/linear_cases.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using LinearRead = KernelTest;
FEM_ON_EVERY_ISA(LinearRead);

struct Gradients {
  at::Tensor mean, free_energy, log_normalizer, state;  // of the outputs, in float64
};

Gradients random_gradients(const LinearInputs& in, at::ScalarType dtype) {
  const auto draw = [&](at::IntArrayRef shape, at::ScalarType rounded) {
    return at::randn(shape).to(rounded).to(at::kDouble);
  };
  const int64_t sequences = in.cu_seqlens ? in.cu_seqlens->size(0) - 1 : in.value.size(0);
  const int64_t columns = in.value.size(3) * (in.beta ? 2 : 1) + 1;
  return {draw(in.value.sizes(), dtype), draw(in.value.sizes(), dtype),
          draw({in.value.size(0), in.value.size(1), in.value.size(2)}, at::kFloat),
          draw({sequences, in.value.size(2), in.key.size(3), columns}, at::kFloat)};
}

struct Result {
  RecurrentRead read;
  std::vector<at::Tensor> gradients;
  std::vector<std::string> names;
};

// The read and the gradients of its inner product with g; undefined parts of g are left out.
template <typename ReadFunction>
Result run(ReadFunction&& function, const LinearInputs& in, const Gradients& g) {
  Result result{function(in), {}, {"query", "key", "value"}};
  const RecurrentRead& read = result.read;
  std::vector<at::Tensor> outputs, seeds, wrt{in.query, in.key, in.value};
  const auto output = [&](const at::Tensor& x, const at::Tensor& seed) {
    if (!x.defined() || !seed.defined()) return;
    outputs.push_back(x);
    seeds.push_back(seed.to(x.scalar_type()));
  };
  output(read.mean, g.mean);
  output(read.free_energy, g.free_energy);
  output(read.log_normalizer, g.log_normalizer);
  output(read.state, g.state);
  const auto input = [&](const std::optional<at::Tensor>& x, const char* name) {
    if (!x) return;
    wrt.push_back(*x);
    result.names.push_back(name);
  };
  input(in.beta, "beta");
  input(in.log_decay, "log_decay");
  input(in.initial, "initial");
  result.gradients = torch::autograd::grad(outputs, wrt, seeds, {}, false, /*allow_unused=*/true);
  return result;
}

// beta's gradient is a difference of two sums of this size.
double beta_magnitude(const LinearInputs& in, const Gradients& g, const RecurrentRead& read) {
  if (!in.beta || !g.free_energy.defined()) return 0;
  return (g.free_energy * read.free_energy / *in.beta).abs().sum({0, 1}).max().item<double>();
}

void expect_close(const Result& actual, const Result& expected, at::ScalarType dtype, double of_beta) {
  const Tolerance forward = forward_tolerance(dtype), backward = gradient_tolerance(dtype);
  const Tolerance exact = dtype == at::kDouble ? kFloat64 : kFloat32;
  EXPECT_TRUE(close(actual.read.mean, expected.read.mean, forward));
  EXPECT_TRUE(close(actual.read.log_normalizer, expected.read.log_normalizer, exact));
  EXPECT_TRUE(close(actual.read.state, expected.read.state, exact));
  if (expected.read.free_energy.defined()) {
    EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, forward));
  }
  for (size_t i = 0; i < expected.gradients.size(); ++i)
    EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], backward, expected.names[i] == "beta" ? of_beta : 0))
        << "gradient of " << expected.names[i];
}

// Runs case c by kernel in dtype and by the definition in float64 on the same (rounded) inputs, and compares all.
void expect_kernel_equals_definition(const LinearCase& c, at::ScalarType dtype) {
  SCOPED_TRACE(c.name);
  const LinearInputs low = cast(make_inputs(c), dtype), exact = cast(low, at::kDouble);
  const Gradients g = random_gradients(low, dtype);
  const Result expected = run(by_definition, exact, g);
  expect_close(run(by_kernel, low, g), expected, dtype, beta_magnitude(exact, g, expected.read));
}

TEST_P(LinearRead, Float32MatchesTheDefinition) {
  for (const LinearCase& c : linear_cases()) expect_kernel_equals_definition(c, at::kFloat);
}

TEST_P(LinearRead, Bfloat16MatchesTheDefinition) {
  for (const LinearCase& c : linear_cases()) expect_kernel_equals_definition(c, at::kBFloat16);
}

TEST_P(LinearRead, Float64RunsTheDefinition) {
  for (const LinearCase& c : linear_cases())
    if (c.tokens <= 300) expect_kernel_equals_definition(c, at::kDouble);
}

TEST_P(LinearRead, AGradientOfOneOutputAloneIsEnough) {
  const LinearInputs low = cast(make_inputs({"", 2, 150, 2, 12, 10, true, true, true}), at::kFloat);
  const LinearInputs exact = cast(low, at::kDouble);
  const Gradients all = random_gradients(low, at::kFloat);
  for (const Gradients& g : {Gradients{all.mean, {}, {}, {}}, Gradients{{}, all.free_energy, {}, {}},
                             Gradients{{}, {}, all.log_normalizer, {}}, Gradients{{}, {}, {}, all.state}}) {
    const Result expected = run(by_definition, exact, g), actual = run(by_kernel, low, g);
    for (size_t i = 0; i < expected.gradients.size(); ++i) {
      // The normaliser depends on no value, and without F and the state nothing depends on beta; the definition's graph
      // may know of no path at all.
      const bool no_path = (expected.names[i] == "beta" && !g.free_energy.defined() && !g.state.defined()) ||
                           (expected.names[i] == "value" && g.log_normalizer.defined());
      if (no_path || !expected.gradients[i].defined()) {
        EXPECT_TRUE((actual.gradients[i] == 0).all().item<bool>()) << expected.names[i];
        continue;
      }
      const double magnitude = expected.names[i] == "beta" ? beta_magnitude(exact, g, expected.read) : 0;
      EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], kFloat32Gradient, magnitude)) << expected.names[i];
    }
  }
}

TEST_P(LinearRead, AnySplitWithTheStatePassedOnEqualsOneCall) {
  at::NoGradGuard no_grad;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const bool decay : {true, false}) {
      const LinearInputs in = cast(make_inputs({"", 2, 700, 2, 12, 10, decay, true, true}), dtype);
      const RecurrentRead whole = by_kernel(in);
      std::vector<at::Tensor> means, energies;
      LinearInputs part = in;
      for (int64_t begin = 0, step = 1; begin < 700; begin += step, step = step * 2 % 131) {
        const auto cut = [&](const at::Tensor& x) { return x.slice(1, begin, begin + step); };
        part.query = cut(in.query), part.key = cut(in.key), part.value = cut(in.value);
        part.key_mask = cut(*in.key_mask);
        if (decay) part.log_decay = cut(*in.log_decay);
        const RecurrentRead read = by_kernel(part);
        means.push_back(read.mean);
        energies.push_back(read.free_energy);
        part.initial = read.state;
      }
      const Tolerance tolerance = forward_tolerance(dtype);
      EXPECT_TRUE(close(at::cat(means, 1), whole.mean, tolerance));
      EXPECT_TRUE(close(at::cat(energies, 1), whole.free_energy, tolerance));
      EXPECT_TRUE(close(*part.initial, whole.state, tolerance));
    }
  }
}

TEST_P(LinearRead, PackedSequencesAreReadAsIfAlone) {
  at::NoGradGuard no_grad;
  const ScopedThreads one(1);  // on more, a sequence alone would be cut
  const std::vector<int64_t> borders{0, 90, 90, 300, 777};
  const LinearInputs in =
      cast(make_inputs({"", 1, 777, 2, 12, 10, true, false, true, false, false, borders}), at::kFloat);
  const RecurrentRead packed = by_kernel(in);
  for (size_t n = 0; n + 1 < borders.size(); ++n) {
    const auto cut = [&](const at::Tensor& x) { return x.slice(1, borders[n], borders[n + 1]); };
    LinearInputs alone{cut(in.query), cut(in.key), cut(in.value), in.beta, cut(*in.log_decay)};
    alone.initial = in.initial->slice(0, n, n + 1);
    const RecurrentRead read = by_kernel(alone);
    EXPECT_TRUE(at::equal(packed.state.slice(0, n, n + 1), read.state));
    EXPECT_TRUE(at::equal(cut(packed.mean), read.mean));
    EXPECT_TRUE(at::equal(cut(packed.free_energy), read.free_energy));
  }
}

TEST_P(LinearRead, ThreadsAgreeAndRunsRepeat) {
  for (const LinearCase& c : std::vector<LinearCase>{
           {"one_head_cut_in_time", 1, 3000, 1, 12, 10, true, true, true},
           {"linear_cut_in_time", 1, 2100, 1, 12, 10, false},
           {"packed_cut_in_time", 1, 2600, 1, 8, 5, true, false, true, false, false, {0, 30, 2500, 2600}},
           {"many", 3, 200, 3, 12, 10}}) {
    SCOPED_TRACE(c.name);
    const LinearInputs in = cast(make_inputs(c), at::kFloat);
    const Gradients g = random_gradients(in, at::kFloat);
    const auto with_threads = [&](int threads) {
      ScopedThreads scope(threads);
      return run(by_kernel, in, g);
    };
    const Result one = with_threads(1);
    const double of_beta = beta_magnitude(in, g, one.read);
    for (const int threads : {2, 3, 5, 8}) {
      SCOPED_TRACE(threads);
      const Result more = with_threads(threads);
      expect_close(more, one, at::kFloat, of_beta);
      const Result again = with_threads(threads);
      EXPECT_TRUE(at::equal(more.read.free_energy, again.read.free_energy));
      for (size_t i = 0; i < more.gradients.size(); ++i)
        EXPECT_TRUE(at::equal(more.gradients[i], again.gradients[i])) << "a second run differs";
    }
  }
}

TEST_P(LinearRead, WhatMaskedTokensHoldHasNoInfluenceEvenNaN) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t tokens : {4, 130}) {
      LinearInputs in = cast(make_inputs({"", 2, tokens, 2, 8, 4, true, true, true}), dtype);
      in.key_mask->select(1, 1).zero_();
      in.key_mask->select(1, 2).fill_(true);
      const Gradients g = random_gradients(in, dtype);
      const Result expected = run(by_kernel, in, g);
      const at::Tensor hidden = in.key_mask->logical_not();
      const auto poison = [&](const at::Tensor& x) {
        at::Tensor y = x.detach().clone();
        y.index_put_({hidden}, at::full({}, NAN, y.options()));
        return y.requires_grad_();
      };
      in.key = poison(in.key), in.value = poison(in.value), in.log_decay = poison(*in.log_decay);
      const Result actual = run(by_kernel, in, g);
      EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
      EXPECT_TRUE(at::equal(actual.read.state, expected.read.state));
      for (size_t i = 0; i < expected.gradients.size(); ++i)
        EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i])) << expected.names[i];
      for (const size_t i : {1, 2, 4})
        EXPECT_TRUE((actual.gradients[i].index({hidden}) == 0).all().item<bool>()) << expected.names[i];
    }
  }
}

TEST_P(LinearRead, WhereNothingIsVisibleTheReadIsZeroAndSilent) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t tokens : {3, 120}) {
      LinearInputs in = cast(make_inputs({"", 2, tokens, 2, 8, 4, true, true}), dtype);
      in.key_mask->fill_(true);
      in.key_mask->select(0, 1).zero_();
      Gradients g = random_gradients(in, dtype);
      g.state.zero_();
      const Result result = run(by_kernel, in, g);
      EXPECT_TRUE((result.read.mean.select(0, 1) == 0).all().item<bool>());
      EXPECT_TRUE((result.read.free_energy.select(0, 1) == 0).all().item<bool>());
      EXPECT_TRUE((result.read.log_normalizer.select(0, 1) == -INFINITY).all().item<bool>());
      EXPECT_TRUE((result.read.state.select(0, 1) == 0).all().item<bool>());
      for (const size_t i : {0, 1, 2, 4})
        EXPECT_TRUE((result.gradients[i].select(0, 1) == 0).all().item<bool>()) << result.names[i];
      EXPECT_TRUE(result.gradients[3].isfinite().all().item<bool>());
    }
  }
}

TEST_P(LinearRead, FutureTokensHaveNoInfluenceAndNoGradient) {
  const int64_t length = 230, now = 101;
  LinearInputs in = cast(make_inputs({"", 1, length, 2, 16, 8}), at::kFloat);
  Gradients g = random_gradients(in, at::kFloat);
  g.mean.slice(1, now).zero_(), g.free_energy.slice(1, now).zero_(), g.log_normalizer.slice(1, now).zero_();
  g.state.zero_();
  const Result before = run(by_kernel, in, g);
  for (const size_t i : {0, 1, 2, 4}) EXPECT_TRUE((before.gradients[i].slice(1, now) == 0).all().item<bool>()) << i;
  const auto changed = [&](const at::Tensor& x) {
    at::Tensor y = x.detach().clone();
    y.slice(1, now).copy_(y.slice(1, now).flip(1));
    return y;
  };
  in.query = changed(in.query), in.key = changed(in.key), in.value = changed(in.value);
  in.log_decay = changed(*in.log_decay);
  const RecurrentRead after = by_kernel(in);
  EXPECT_TRUE(at::equal(after.free_energy.slice(1, 0, now), before.read.free_energy.slice(1, 0, now)));
  EXPECT_FALSE(at::equal(after.free_energy.slice(1, now), before.read.free_energy.slice(1, now)));
}

TEST_P(LinearRead, NaNReachesTheOutputsItMust) {
  for (const int64_t tokens : {4, 200}) {
    const int64_t at = tokens / 2;
    const LinearInputs in = cast(make_inputs({"", 1, tokens, 1, 8, 4}), at::kFloat);
    const auto poisoned = [&](const at::Tensor& x) {
      at::Tensor y = x.detach().clone();
      y.select(1, at).fill_(NAN);
      return y;
    };
    LinearInputs key = in, value = in, decay = in;
    key.key = poisoned(in.key), value.value = poisoned(in.value), decay.log_decay = poisoned(*in.log_decay);
    for (const LinearInputs& bad : {key, value, decay}) {
      const RecurrentRead read = by_kernel(bad);
      EXPECT_TRUE(read.free_energy.slice(1, at).isnan().all().item<bool>());
      EXPECT_TRUE(read.mean.slice(1, at).isnan().all().item<bool>());
      EXPECT_TRUE(read.state.isnan().any().item<bool>());
    }
  }
}

TEST_P(LinearRead, ValuesUpToTheCapStayFiniteAndExact) {
  LinearInputs in = make_inputs({"", 1, 300, 1, 6, 5});
  in.beta = at::full({1, 5}, 2.0, at::kDouble);
  in.value = at::where(at::rand_like(in.value) > 0.03, -20.0, 20.0);
  const LinearInputs low = cast(in, at::kFloat), exact = cast(in, at::kDouble);
  const Gradients g = random_gradients(low, at::kFloat);
  const Result expected = run(by_definition, exact, g), actual = run(by_kernel, low, g);
  EXPECT_TRUE(close(actual.read.mean, expected.read.mean, kFloat32));
  EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, kFloat32));
  EXPECT_TRUE(close(actual.read.state, expected.read.state, kFloat32));
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    // e^80 apart, the gradients of single tokens cancel almost entirely against each other.
    const double magnitude = expected.names[i] == "beta" ? beta_magnitude(exact, g, expected.read) : 0;
    EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], kFloat32Gradient, magnitude)) << expected.names[i];
  }
}

TEST_P(LinearRead, StridedInputsGiveTheSame) {
  const LinearInputs in = cast(make_inputs({"", 2, 70, 3, 16, 8}), at::kFloat);
  const Gradients g = random_gradients(in, at::kFloat);
  const Result expected = run(by_kernel, in, g);
  LinearInputs strided = in;
  const auto every_second = [](const at::Tensor& x) {
    return at::stack({x, x}, -1).flatten(-2).slice(-1, 0, std::nullopt, 2);
  };
  strided.query = in.query.transpose(1, 2).contiguous().transpose(1, 2);
  strided.key = every_second(in.key);
  strided.value = at::cat({in.value, in.value}, 3).slice(3, 0, 8);
  strided.log_decay = every_second(*in.log_decay);
  Gradients expanded = g;
  expanded.mean = g.mean.transpose(0, 3).contiguous().transpose(0, 3);
  expanded.log_normalizer = every_second(g.log_normalizer);
  const Result actual = run(by_kernel, strided, expanded);
  EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
  for (size_t i = 0; i < expected.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i])) << expected.names[i];
}

TEST_P(LinearRead, EmptyInputsGiveEmptyReadsAndPassTheStateOn) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t batch : {0, 2}) {
      const LinearInputs in = cast(make_inputs({"", batch, batch == 0 ? 5 : 0, 2, 8, 4, true, true, true}), dtype);
      const Result result = run(by_kernel, in, random_gradients(in, dtype));
      EXPECT_EQ(result.read.mean.sizes(), in.value.sizes());
      EXPECT_EQ(result.read.free_energy.sizes(), in.value.sizes());
      EXPECT_TRUE(at::equal(result.read.state, *in.initial));
      EXPECT_FALSE(result.read.state.is_alias_of(*in.initial));
      EXPECT_TRUE((result.gradients[3] == 0).all().item<bool>());
      EXPECT_EQ(result.gradients[5].sizes(), in.initial->sizes());
    }
  }
}

TEST_P(LinearRead, MinusInfinityForgetsThePast) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    LinearInputs in = cast(make_inputs({"", 1, 200, 2, 8, 4, true, false, true}), dtype);
    const int64_t border = 77;
    in.log_decay->detach().select(1, border).fill_(-INFINITY);
    Gradients g = random_gradients(in, dtype);
    g.mean.slice(1, 0, border).zero_(), g.free_energy.slice(1, 0, border).zero_();
    g.log_normalizer.slice(1, 0, border).zero_();
    const Result all = run(by_kernel, in, g);
    const auto cut = [&](const at::Tensor& x) { return x.slice(1, border); };
    const LinearInputs rest{cut(in.query), cut(in.key), cut(in.value), in.beta, cut(*in.log_decay)};
    const RecurrentRead alone = by_kernel(rest);
    EXPECT_TRUE(close(cut(all.read.free_energy), alone.free_energy, forward_tolerance(dtype)));
    EXPECT_TRUE(close(all.read.state, alone.state, forward_tolerance(dtype)));
    for (const size_t i : {0, 1, 2, 4})
      EXPECT_TRUE((all.gradients[i].slice(1, 0, border) == 0).all().item<bool>()) << all.names[i];
    EXPECT_TRUE((all.gradients[4].select(1, border) == 0).all().item<bool>());
    EXPECT_TRUE((all.gradients[5] == 0).all().item<bool>());
    for (const at::Tensor& gradient : all.gradients) EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  }
}

TEST_P(LinearRead, ZeroDecayEqualsLinear) {
  LinearInputs in = make_inputs({"", 2, 300, 2, 12, 10});
  in.log_decay->zero_();
  LinearInputs gated = cast(in, at::kFloat), plain = gated;
  plain.log_decay.reset();
  const Gradients g = random_gradients(gated, at::kFloat);
  const Result a = run(by_kernel, gated, g), b = run(by_kernel, plain, g);
  EXPECT_TRUE(at::equal(a.read.mean, b.read.mean) && at::equal(a.read.free_energy, b.read.free_energy));
  EXPECT_TRUE(at::equal(a.read.state, b.read.state));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << a.names[i];
}

}  // namespace
}  // namespace fem::testing
