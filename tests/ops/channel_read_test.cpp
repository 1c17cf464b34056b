#include "fem/ops/channel_read.h"

#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <functional>

#include "ops/channel_read/channel_read.h"
#include "support/channel_cases.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using namespace channel;

using ChannelRead = KernelTest;
FEM_ON_EVERY_ISA(ChannelRead);

// Runs case c by kernel in dtype and by the definition in float64 on the same (rounded) inputs, and compares all.
void expect_kernel_equals_definition(const Case& c, at::ScalarType dtype) {
  SCOPED_TRACE(c.name);
  const ChannelInputs low = cast(make_inputs(c), dtype), exact = cast(low, at::kDouble);
  RecurrentRead grads = random_gradients(by_definition(exact));
  for (at::Tensor* grad : {&grads.mean, &grads.free_energy})
    if (grad->defined()) *grad = grad->to(dtype).to(at::kDouble);
  expect_same(run(by_operator, low, grads), run(by_definition, exact, grads), exact, grads, dtype);
}

TEST_P(ChannelRead, Float32MatchesTheDefinition) {
  for (const Case& c : cases()) expect_kernel_equals_definition(c, at::kFloat);
}

TEST_P(ChannelRead, Bfloat16MatchesTheDefinition) {
  for (const Case& c : cases()) expect_kernel_equals_definition(c, at::kBFloat16);
}

TEST_P(ChannelRead, Float64RunsTheDefinition) {
  for (const Case& c : cases())
    if (c.tokens <= 150) expect_kernel_equals_definition(c, at::kDouble);
}

const std::vector<Case>& priors() {
  static const std::vector<Case> all{
      {"aft", 1, 300, 2, 5, true, false}, {"decay", 1, 300, 2, 5, false, true}, {"both", 1, 300, 2, 5, true, true}};
  return all;
}

ChannelInputs cut(const ChannelInputs& in, int64_t begin, int64_t end) {
  ChannelInputs part = in;
  part.value = in.value.slice(1, begin, end);
  for (auto member : {&ChannelInputs::log_weight, &ChannelInputs::log_decay, &ChannelInputs::key_mask})
    if (in.*member) part.*member = (in.*member)->slice(1, begin, end);
  return part;
}

// The same sequence in several calls, each with the state of the one before.
RecurrentRead in_parts(const ChannelInputs& in, const std::vector<int64_t>& borders) {
  std::vector<at::Tensor> mean, free_energy, log_normalizer;
  OptionalTensor state = in.initial;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    ChannelInputs part = cut(in, borders[i], borders[i + 1]);
    part.initial = state;
    const RecurrentRead read = by_operator(part);
    mean.push_back(read.mean);
    free_energy.push_back(read.free_energy);
    log_normalizer.push_back(read.log_normalizer);
    state = read.state;
  }
  return {{at::cat(mean, 1), at::cat(free_energy, 1)}, at::cat(log_normalizer, 1), *state};
}

TEST_P(ChannelRead, AnySplitWithTheStatePassedOnEqualsOneCall) {
  std::vector<int64_t> one_by_one;
  for (int64_t t = 0; t <= 300; ++t) one_by_one.push_back(t);
  for (Case c : priors())
    for (const bool masked : {false, true})
      for (const bool strict : {false, true}) {
        SCOPED_TRACE(c.name + (masked ? " masked" : "") + (strict ? " strict" : ""));
        c.masked = masked;
        c.strict = strict;
        const ChannelInputs in = cast(make_inputs(c), at::kFloat), exact = cast(in, at::kDouble);
        const RecurrentRead grads = random_gradients(by_definition(exact));
        const Result whole = run(by_operator, in, grads);
        for (const auto& borders : std::vector<std::vector<int64_t>>{{0, 1, 2, 66, 66, 130, 300}, one_by_one}) {
          const auto parts = [&](const ChannelInputs& x) { return in_parts(x, borders); };
          expect_same(run(parts, in, grads), whole, exact, grads, at::kFloat);
        }
      }
}

TEST_P(ChannelRead, PackedSequencesEqualThemselvesAlone) {
  const std::vector<int64_t> borders{0, 70, 70, 71, 200, 300};
  for (Case c : priors()) {
    SCOPED_TRACE(c.name);
    c.cu_seqlens = borders;
    c.initial = true;
    const ChannelInputs in = cast(make_inputs(c), at::kFloat);
    const RecurrentRead packed = by_operator(in);
    for (size_t n = 0; n + 1 < borders.size(); ++n) {
      ChannelInputs alone = cut(in, borders[n], borders[n + 1]);
      alone.cu_seqlens = std::nullopt;
      alone.initial = in.initial->slice(0, n, n + 1);
      const RecurrentRead read = by_operator(alone);
      EXPECT_TRUE(at::equal(packed.free_energy.slice(1, borders[n], borders[n + 1]), read.free_energy));
      EXPECT_TRUE(at::equal(packed.log_normalizer.slice(1, borders[n], borders[n + 1]), read.log_normalizer));
      EXPECT_TRUE(at::equal(packed.state[n], read.state[0]));
    }
  }
}

TEST_P(ChannelRead, AnyNumberOfThreadsGivesTheSame) {
  // One group of channels: beyond one thread the sequence itself is divided.
  for (const Case& shape :
       std::vector<Case>{{"aft", 1, 3000, 1, 5, true, false, true},
                         {"decay", 1, 3000, 1, 5, false, true, false, {}, true},
                         {"decay_strict", 1, 3000, 1, 5, false, true, true, {}, false, true},
                         {"both", 2, 1500, 1, 5, true, true, true, {}, true},
                         {"aft_mean_only", 1, 3000, 1, 5, true, false, false, {}, true, false, true},
                         {"packed", 1, 3000, 1, 5, true, true, false, {0, 2, 700, 700, 3000}, true}}) {
    SCOPED_TRACE(shape.name);
    const ChannelInputs in = cast(make_inputs(shape), at::kFloat), exact = cast(in, at::kDouble);
    const RecurrentRead grads = random_gradients(by_operator(in));
    const auto with_threads = [&](int threads) {
      ScopedThreads scope(threads);
      return run(by_operator, in, grads);
    };
    const Result one = with_threads(1);
    for (const int threads : {2, 3, 5, 8}) {
      const Result more = with_threads(threads), again = with_threads(threads);
      expect_same(more, one, exact, grads, at::kFloat);
      for (const auto& [name, gradient] : more.gradients)
        EXPECT_TRUE(at::equal(gradient, again.gradients.at(name))) << name << ": a second run differs";
    }
  }
}

TEST_P(ChannelRead, WeightsThatFallWithTheDecaysAreToldApart) {
  // All tokens matter alike, though every scale is far from the ones before and no sum of decays is a float32.
  const int64_t tokens = 2000;
  ChannelInputs in = make_inputs({"", 1, tokens, 1, 4, true, true});
  in.log_decay = at::full({1, tokens, 1, 4}, -4.1f).to(at::kDouble);
  in.log_weight = (at::arange(tokens, at::kDouble).view({1, tokens, 1, 1}) * -4.1 + at::rand_like(in.value))
                      .to(at::kFloat)
                      .to(at::kDouble);
  const RecurrentRead expected = by_definition(in);
  for (const int threads : {1, 8}) {
    ScopedThreads scope(threads);
    const RecurrentRead actual = by_operator(cast(in, at::kFloat));
    EXPECT_TRUE(close(actual.mean, expected.mean, kFloat32));
    EXPECT_TRUE(close(actual.free_energy, expected.free_energy, kFloat32));
  }
}

TEST_P(ChannelRead, ASequenceInPartsForgetsWhatAWholeOneForgets) {
  for (const Case& c : std::vector<Case>{{"decay", 1, 1500, 1, 4, false, true, false, {}, true},
                                         {"both", 1, 1500, 1, 4, true, true, true, {}, true}}) {
    SCOPED_TRACE(c.name);
    ChannelInputs drawn = make_inputs(c);
    for (const int64_t token : {100, 101, 900}) drawn.log_decay->select(1, token).fill_(-INFINITY);
    const ChannelInputs in = cast(drawn, at::kFloat), exact = cast(in, at::kDouble);
    const RecurrentRead grads = random_gradients(by_definition(exact));
    const Result expected = run(by_definition, exact, grads);
    for (const int threads : {1, 2, 3, 5}) {
      SCOPED_TRACE(threads);
      ScopedThreads scope(threads);
      expect_same(run(by_operator, in, grads), expected, exact, grads, at::kFloat);
    }
  }
}

TEST_P(ChannelRead, StridedInputsGiveTheSame) {
  for (Case c : priors()) {
    SCOPED_TRACE(c.name);
    c.batch = 2;
    const ChannelInputs in = cast(make_inputs(c), at::kFloat);
    const RecurrentRead grads = random_gradients(by_operator(in));
    const Result expected = run(by_operator, in, grads);
    const auto heads_apart = [](const at::Tensor& x) { return at::cat({x, x}, 3).slice(3, 0, x.size(3)); };
    const auto tokens_apart = [](const at::Tensor& x) { return at::stack({x, x}, 2).select(2, 1); };
    const auto heads_first = [](const at::Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); };
    const auto elements_apart = [](const at::Tensor& x) { return at::stack({x, x}, -1).select(-1, 0); };
    const std::vector<std::function<at::Tensor(const at::Tensor&)>> layouts{heads_apart, tokens_apart, heads_first,
                                                                            elements_apart};
    for (size_t layout = 0; layout < layouts.size(); ++layout) {
      SCOPED_TRACE(layout);
      const auto strided = [&](const ChannelInputs& x) {
        ChannelInputs other = x;
        other.value = layouts[layout](x.value);
        if (x.log_weight) other.log_weight = layouts[(layout + 1) % 4](*x.log_weight);
        if (x.log_decay) other.log_decay = layouts[(layout + 2) % 4](*x.log_decay);
        RecurrentRead read = by_operator(other);
        read.mean = layouts[layout](read.mean);  // its gradient then comes strided, too
        return read;
      };
      const Result actual = run(strided, in, grads);
      EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
      for (const auto& [name, gradient] : expected.gradients)
        EXPECT_TRUE(close(actual.gradients.at(name), gradient, kFloat32Exact)) << name;
    }
  }
}

TEST_P(ChannelRead, GradientsOfSomeOutputsAreThoseOfZerosForTheOthers) {
  const ChannelInputs in = cast(make_inputs({"", 2, 90, 1, 5, true, true, false, {}, true}), at::kFloat);
  const RecurrentRead all = random_gradients(by_operator(in));
  for (int given = 0; given < 4; ++given) {
    SCOPED_TRACE(given);
    RecurrentRead some, padded = all;
    at::Tensor* parts[] = {&padded.mean, &padded.free_energy, &padded.log_normalizer, &padded.state};
    at::Tensor* kept[] = {&some.mean, &some.free_energy, &some.log_normalizer, &some.state};
    for (int i = 0; i < 4; ++i)
      if (i == given)
        *kept[i] = *parts[i];
      else
        *parts[i] = at::zeros_like(*parts[i]);
    const Result expected = run(by_operator, in, padded), actual = run(by_operator, in, some);
    for (const auto& [name, gradient] : expected.gradients)
      EXPECT_TRUE(at::equal(actual.gradients.at(name), gradient)) << name;
  }
}

TEST_P(ChannelRead, EmptyInputsGiveEmptyReads) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const auto& [batch, tokens] : std::vector<std::array<int64_t, 2>>{{0, 5}, {2, 0}, {0, 0}})
      for (const bool initial : {false, true}) {
        const ChannelInputs in = cast(make_inputs({"", batch, tokens, 2, 3, true, true, false, {}, initial}), dtype);
        const RecurrentRead read = by_operator(in);
        EXPECT_EQ(read.mean.sizes(), (at::IntArrayRef{batch, tokens, 2, 3}));
        EXPECT_EQ(read.state.sizes(), (at::IntArrayRef{batch, 4, 2, 3}));
        if (!initial) {
          EXPECT_TRUE((read.state.select(1, 0) == -INFINITY).all().item<bool>());
          EXPECT_TRUE((read.state.slice(1, 1) == 0).all().item<bool>());
          continue;
        }
        EXPECT_TRUE(at::equal(read.state, *in.initial));
        const auto gradients = torch::autograd::grad({read.state.slice(1, 1).sum()}, {in.value, *in.initial});
        EXPECT_TRUE((gradients[0] == 0).all().item<bool>());
        EXPECT_TRUE((gradients[1].slice(1, 1) == 1).all().item<bool>());
      }
}

TEST_P(ChannelRead, MaskedRowsAreSilent) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (Case c : priors()) {
      SCOPED_TRACE(c.name);
      c.batch = 2;
      ChannelInputs in = cast(make_inputs(c), dtype);
      in.key_mask = at::ones({2, c.tokens}, at::kBool);
      in.key_mask->select(0, 1).zero_();
      const RecurrentRead grads = random_gradients(by_operator(in));
      const Result result = run(by_operator, in, grads);
      EXPECT_TRUE((result.read.mean[1] == 0).all().item<bool>());
      EXPECT_TRUE((result.read.free_energy[1] == 0).all().item<bool>());
      EXPECT_TRUE((result.read.log_normalizer[1] == -INFINITY).all().item<bool>());
      EXPECT_TRUE((result.read.state[1][0] == -INFINITY).all().item<bool>());
      for (const auto& [name, gradient] : result.gradients) {
        EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << name;
        if (name != "beta") {
          EXPECT_TRUE((gradient[1] == 0).all().item<bool>()) << name;
        }
      }
    }
}

TEST_P(ChannelRead, WhatMaskedTokensHoldHasNoInfluenceEvenNaN) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (Case c : priors())
      for (const bool strict : {false, true}) {
        SCOPED_TRACE(c.name);
        c.masked = true;
        c.strict = strict;
        ChannelInputs in = cast(make_inputs(c), dtype);
        const RecurrentRead grads = random_gradients(by_operator(in));
        const Result expected = run(by_operator, in, grads);
        const at::Tensor hidden = in.key_mask->logical_not().view({1, -1, 1, 1});
        const auto poisoned = [&](const at::Tensor& x) { return x.detach().masked_fill(hidden, NAN).requires_grad_(); };
        in.value = poisoned(in.value);
        if (in.log_weight) in.log_weight = poisoned(*in.log_weight);
        if (in.log_decay) in.log_decay = poisoned(*in.log_decay);
        const Result actual = run(by_operator, in, grads);
        EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
        EXPECT_TRUE(at::equal(actual.read.log_normalizer, expected.read.log_normalizer));
        for (const auto& [name, gradient] : expected.gradients) {
          EXPECT_TRUE(at::equal(actual.gradients.at(name), gradient)) << name;
          if (name != "beta") {
            EXPECT_TRUE((gradient.masked_select(hidden) == 0).all().item<bool>()) << name;
          }
        }
      }
}

TEST_P(ChannelRead, FutureTokensHaveNoInfluenceAndNoGradient) {
  const int64_t now = 101;
  for (const Case& c : priors()) {
    SCOPED_TRACE(c.name);
    ChannelInputs in = cast(make_inputs(c), at::kFloat);
    RecurrentRead grads = random_gradients(by_operator(in));
    for (at::Tensor* grad : {&grads.mean, &grads.free_energy, &grads.log_normalizer}) grad->slice(1, now).zero_();
    grads.state = at::Tensor();
    const Result before = run(by_operator, in, grads);
    for (const auto& [name, gradient] : before.gradients)
      if (name != "beta") {
        EXPECT_TRUE((gradient.slice(1, now) == 0).all().item<bool>()) << name;
      }
    const auto changed = [&](const at::Tensor& x) {
      return at::cat({x.detach().slice(1, 0, now), x.detach().slice(1, now).flip(1)}, 1);
    };
    in.value = changed(in.value);
    if (in.log_weight) in.log_weight = changed(*in.log_weight);
    if (in.log_decay) in.log_decay = changed(*in.log_decay);
    const RecurrentRead after = by_operator(in);
    EXPECT_TRUE(at::equal(after.free_energy.slice(1, 0, now), before.read.free_energy.slice(1, 0, now)));
    EXPECT_FALSE(at::equal(after.free_energy.slice(1, now), before.read.free_energy.slice(1, now)));
  }
}

TEST_P(ChannelRead, NaNReachesTheOutputsItMust) {
  for (const Case& c : priors()) {
    SCOPED_TRACE(c.name);
    for (auto part : {&ChannelInputs::log_weight, &ChannelInputs::log_decay}) {
      ChannelInputs in = cast(make_inputs(c), at::kFloat);
      at::NoGradGuard no_grad;
      if (!(in.*part)) continue;
      (in.*part)->select(1, 20).fill_(NAN);
      EXPECT_TRUE(by_operator(in).free_energy.slice(1, 20).isnan().all().item<bool>());
      EXPECT_TRUE(by_operator(in).free_energy.slice(1, 0, 20).isfinite().all().item<bool>());
    }
    ChannelInputs in = cast(make_inputs(c), at::kFloat);
    at::NoGradGuard no_grad;
    in.value.select(1, 20).fill_(NAN);
    EXPECT_TRUE(by_operator(in).mean.slice(1, 20).isnan().all().item<bool>());
  }
}

TEST_P(ChannelRead, InfinitelySmallWeightsAndDecaysCountAsNothing) {
  for (const Case& c : priors())
    for (const bool strict : {false, true}) {
      SCOPED_TRACE(c.name + (strict ? " strict" : ""));
      ChannelInputs drawn = make_inputs(c);
      drawn.strict = strict;
      // Here and there, and in the beginning for so long that sums are read while they are empty.
      const auto infinite = [&](at::Tensor x) {
        x.masked_fill_(at::rand_like(x) < 0.1, -INFINITY);
        x.slice(1, 0, 3).fill_(-INFINITY);
      };
      if (drawn.log_weight) infinite(*drawn.log_weight);
      if (drawn.log_decay) infinite(*drawn.log_decay);
      const ChannelInputs in = cast(drawn, at::kFloat), exact = cast(drawn, at::kDouble);
      const RecurrentRead grads = random_gradients(by_definition(exact));
      expect_same(run(by_operator, in, grads), run(by_definition, exact, grads), exact, grads, at::kFloat);
    }
}

}  // namespace
}  // namespace fem::testing
