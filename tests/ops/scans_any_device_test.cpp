// The linear-time reads in chunks: what devices without kernels of their own run, here on the CPU.
#include "ops/autograd.h"
#include "ops/channel_read/channel_read.h"
#include "ops/linear_read/linear_read.h"
#include "ops/ssm_read/ssm_read.h"
#include "support/any_device.h"
#include "support/channel_cases.h"
#include "support/error_text.h"
#include "support/kernel_test.h"
#include "support/linear_cases.h"
#include "support/ssm_cases.h"

namespace fem::testing {
namespace {

using Tensors = std::vector<at::Tensor>;
using channel::ChannelInputs;

class ScansAnywhere : public ::testing::Test {
 protected:
  ScansAnywhere() { at::manual_seed(7); }

 private:
  PoisonedMemory poison_;
  at::NoGradGuard no_grad_;
};

// What computes a scan: the definition, another device's call in chunks, or that with every chunk a portion.
enum class By { kDefinition, kChunks, kSingleChunks };

// A scan of given inputs; outputs are mean, free energy (if there is beta), log-normaliser and state.
struct Scan {
  By by;
  std::vector<std::string> inputs;
  OptionalTensor beta;
  std::function<Tensors()> read;
  std::function<Tensors(const Tensors& grads)> gradient;
};

// Both in float64, or the first in dtype and the second in float64 on the same rounded inputs.
void expect_same(const Scan& chunks, const Scan& definition, at::ScalarType dtype) {
  const Tensors actual = chunks.read(), expected = definition.read();
  ASSERT_EQ(actual.size(), 4u);
  Tensors grads, exact_grads;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!definition.beta && i == 1) {
      EXPECT_EQ(actual[i].numel(), 0);
      grads.emplace_back(), exact_grads.emplace_back();
      continue;
    }
    EXPECT_TRUE(close_or_zero(actual[i], expected[i], forward_tolerance(actual[i].scalar_type()))) << "output " << i;
    if (chunks.by == By::kChunks) EXPECT_TRUE(actual[i].is_contiguous()) << "output " << i;
    grads.push_back(at::randn(actual[i].sizes()).to(actual[i].scalar_type()));
    exact_grads.push_back(grads.back().to(at::kDouble));
  }
  const Tensors d = chunks.gradient(grads), exact = definition.gradient(exact_grads);
  for (size_t i = 0; i < exact.size(); ++i) {
    SCOPED_TRACE(definition.inputs[i]);
    if (!exact[i].defined()) {
      if (chunks.by == By::kChunks) EXPECT_EQ(d[i].numel(), 0);
      continue;
    }
    // That of beta is a difference of two sums of this size.
    const double magnitude =
        definition.inputs[i] == "beta"
            ? (exact_grads[1] * expected[1] / *definition.beta).abs().sum({0, 1}).max().item<double>()
            : 0;
    EXPECT_TRUE(close_or_zero(d[i], exact[i], gradient_tolerance(dtype), magnitude));
  }
}

template <typename Op>
Scan scan_of(const typename Op::Inputs& in, By by) {
  const auto outputs = [=] {
    return by == By::kDefinition ? Op::definition(in) : by == By::kChunks ? as_on_cuda<Op>(in) : Op::elsewhere(in, 1);
  };
  const auto read = [=] {
    Tensors out = tensors_of(outputs());
    out.pop_back();  // checkpoints
    return out;
  };
  const auto gradient = [=](const Tensors& g) {
    auto b = all_gradients<Op>({g[0], g[1], g[2], g[3], {}}, in);
    if (by == By::kChunks) b.out = outputs();
    return tensors_of<0, Op::kLearned>(by == By::kDefinition ? gradient_of_definition<Op>(b)
                                       : by == By::kChunks   ? gradient_as_on_cuda<Op>(b)
                                                             : Op::gradient_elsewhere(b, 1));
  };
  return {by, names_in(Op::kSchema).inputs, in.beta, read, gradient};
}
Scan linear_scan(const LinearInputs& in, By by) { return scan_of<LinearScanOp>(in, by); }
Scan channel_scan(const ChannelInputs& in, By by) { return scan_of<ChannelScanOp>(in, by); }
Scan ssm_scan(const SsmInputs& in, By by) { return scan_of<SsmScanOp>(in.scan(), by); }

// Many short sequences, an empty one among them, and two long ones: rows of chunks become fewer from step to step.
std::vector<int64_t> uneven_borders() {
  std::vector<int64_t> borders{0, 200};
  for (int64_t i = 0; i < 40; ++i) borders.push_back(borders.back() + i % 4);
  borders.push_back(borders.back() + 170);
  return borders;
}

template <typename Inputs, typename MakeScan>
void expect_all_dtypes(const Inputs& inputs, MakeScan&& scan) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(dtype);
    const Inputs low = cast(inputs, dtype);
    for (const By by : {By::kChunks, By::kSingleChunks})
      expect_same(scan(low, by), scan(cast(low, at::kDouble), By::kDefinition), dtype);
  }
}

TEST_F(ScansAnywhere, LinearMatchesTheDefinition) {
  std::vector<LinearCase> cases = linear_cases();
  cases.push_back({"uneven", 1, 430, 2, 6, 5, true, true, true, false, false, uneven_borders()});
  for (const LinearCase& c : cases) {
    SCOPED_TRACE(c.name);
    expect_all_dtypes(make_inputs(c), linear_scan);
  }
}

TEST_F(ScansAnywhere, ChannelsMatchTheDefinition) {
  std::vector<channel::Case> cases = channel::cases();
  cases.push_back({"uneven", 1, 430, 2, 6, true, true, true, uneven_borders(), true});
  for (const channel::Case& c : cases) {
    SCOPED_TRACE(c.name);
    const ChannelInputs in = channel::make_inputs(c);
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(dtype);
      const ChannelInputs low = channel::cast(in, dtype);
      for (const By by : {By::kChunks, By::kSingleChunks})
        expect_same(channel_scan(low, by), channel_scan(channel::cast(low, at::kDouble), By::kDefinition), dtype);
    }
  }
}

TEST_F(ScansAnywhere, SsmMatchesTheDefinition) {
  std::vector<SsmCase> cases = ssm_cases();
  cases.push_back({"uneven", 1, 430, 2, 4, 3, true, uneven_borders(), true});
  for (const SsmCase& c : cases) {
    if (!c.causal) continue;  // an encoder is two of the others
    SCOPED_TRACE(c.name);
    expect_all_dtypes(make_inputs(c), ssm_scan);
  }
}

TEST_F(ScansAnywhere, DecaysThatForgetEverythingAndWeightsOfAnySize) {
  LinearInputs linear = make_inputs(LinearCase{"", 2, 200, 2, 6, 5, true, true, true});
  linear.log_decay->slice(1, 0, std::nullopt, 7).fill_(-INFINITY);
  expect_all_dtypes(linear, linear_scan);
  channel::Case c{"", 2, 200, 2, 5, true, true, true, {}, true};
  ChannelInputs channels = channel::make_inputs(c);
  channels.log_decay->slice(1, 0, std::nullopt, 7).fill_(-INFINITY);
  channels.log_weight->slice(1, 3, std::nullopt, 5).fill_(-INFINITY);
  *channels.log_weight *= 50;
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const ChannelInputs low = channel::cast(channels, dtype);
    expect_same(channel_scan(low, By::kSingleChunks), channel_scan(channel::cast(low, at::kDouble), By::kDefinition),
                dtype);
  }
}

TEST_F(ScansAnywhere, WhatMaskedTokensHoldHasNoInfluenceEvenNaN) {
  const auto expect_equal = [](const Scan& a, const Scan& b) {
    const Tensors out = a.read(), same = b.read();
    Tensors grads;
    for (const at::Tensor& x : out) grads.push_back(at::randn_like(x));
    for (size_t i = 0; i < out.size(); ++i) EXPECT_TRUE(at::equal(out[i], same[i])) << "output " << i;
    const Tensors d = a.gradient(grads), also = b.gradient(grads);
    for (size_t i = 0; i < d.size(); ++i) EXPECT_TRUE(at::equal(d[i], also[i])) << a.inputs[i];
  };
  const auto poisoned = [](const at::Tensor& x, const OptionalTensor& mask) {
    std::vector<int64_t> shape(x.dim(), 1);
    shape[0] = x.size(0), shape[1] = x.size(1);
    return x.masked_fill(mask->logical_not().view(shape), NAN);
  };
  LinearInputs linear = cast(make_inputs(LinearCase{"", 2, 150, 2, 6, 5, true, true, true}), at::kFloat), a = linear;
  for (at::Tensor* x : {&a.key, &a.value, &*a.log_decay}) *x = poisoned(*x, a.key_mask);
  expect_equal(linear_scan(linear, By::kSingleChunks), linear_scan(a, By::kSingleChunks));
  ChannelInputs channels =
      channel::cast(channel::make_inputs({"", 2, 150, 2, 5, true, true, true, {}, true}), at::kFloat);
  ChannelInputs b = channels;
  for (at::Tensor* x : {&b.value, &*b.log_weight, &*b.log_decay}) *x = poisoned(*x, b.key_mask);
  expect_equal(channel_scan(channels, By::kSingleChunks), channel_scan(b, By::kSingleChunks));
  SsmInputs ssm = cast(make_inputs(SsmCase{"", 2, 150, 2, 5, 3, true, {}, true}), at::kFloat), c = ssm;
  for (at::Tensor* x : {&c.value, &c.ssm.delta, &c.ssm.B}) *x = poisoned(*x, c.options.key_mask);
  expect_equal(ssm_scan(ssm, By::kSingleChunks), ssm_scan(c, By::kSingleChunks));
}

TEST_F(ScansAnywhere, EmptyInputsPassTheStateOn) {
  for (const auto& [batch, tokens] : std::vector<std::array<int64_t, 2>>{{0, 5}, {2, 0}}) {
    const LinearInputs linear =
        cast(make_inputs(LinearCase{"", batch, tokens, 2, 6, 5, true, false, true}), at::kFloat);
    EXPECT_TRUE(at::equal(linear_scan(linear, By::kChunks).read()[3], *linear.initial));
    const ChannelInputs channels =
        channel::cast(channel::make_inputs({"", batch, tokens, 2, 5, true, true, false, {}, true}), at::kFloat);
    EXPECT_TRUE(at::equal(channel_scan(channels, By::kChunks).read()[3], *channels.initial));
    const SsmInputs ssm = cast(make_inputs(SsmCase{"", batch, tokens, 2, 5, 3, false, {}, true}), at::kFloat);
    EXPECT_TRUE(at::equal(ssm_scan(ssm, By::kChunks).read()[3], *ssm.options.initial));
  }
}

// As the operator's members compute it, and not as the definition does.
template <typename Op>
void expect_call_arrives(const typename Op::Inputs& in) {
  const ScanReads read = as_on_cuda<Op>(in), expected = Op::elsewhere(in);
  const Tensors outputs = tensors_of(read), wanted = tensors_of(expected);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(outputs[i], wanted[i])) << "output " << i;
  EXPECT_FALSE(at::equal(read.free_energy, Op::definition(in).free_energy)) << "nothing tells the paths apart";
  const auto random = [](const at::Tensor& like) { return at::randn_like(like); };
  const auto b = all_gradients<Op>(
      {random(read.mean), random(read.free_energy), random(read.log_normalizer), random(read.state), {}}, in, read);
  const Tensors gradients = tensors_of<0, Op::kLearned>(gradient_as_on_cuda<Op>(b));
  const Tensors of_chunks = tensors_of<0, Op::kLearned>(Op::gradient_elsewhere(b));
  for (size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(at::equal(gradients[i], of_chunks[i])) << "input " << i;
}

TEST_F(ScansAnywhere, AnotherDevicesCallArrivesHere) {
  // Chunks of 50 tokens, the mean length: the last sequence is added up in another order than by the definition.
  const std::vector<int64_t> borders{0, 30, 60, 150};
  expect_call_arrives<LinearScanOp>(
      cast(make_inputs(LinearCase{"", 1, 150, 2, 6, 5, true, true, true, false, false, borders}), at::kFloat));
  expect_call_arrives<ChannelScanOp>(
      channel::cast(channel::make_inputs({"", 1, 150, 2, 5, true, true, true, borders, true}), at::kFloat));
  expect_call_arrives<SsmScanOp>(
      cast(make_inputs(SsmCase{"", 1, 150, 2, 5, 3, true, borders, true}), at::kFloat).scan());
}

TEST_F(ScansAnywhere, Float16IsRefused) {
  const at::Tensor x = at::ones({1, 2, 1, 4}, at::kHalf);
  EXPECT_TRUE(fails_with("linear_read: expected float32, bfloat16 or float64, got Half (float16 cannot hold",
                         [&] { as_on_cuda<LinearScanOp>({x, x, x, {}, {}, {}, {}, {}, false}); }));
  EXPECT_TRUE(fails_with("channel_read: expected float32, bfloat16 or float64, got Half (float16 cannot hold",
                         [&] { as_on_cuda<ChannelScanOp>({x, {}, x, {}, {}, {}, {}, false}); }));
  EXPECT_TRUE(fails_with("ssm_read: expected float32, bfloat16 or float64, got Half (float16 cannot hold",
                         [&] { as_on_cuda<SsmScanOp>({x, {}, x, x, x, x, x, {}, {}, {}, false, false}); }));
}

}  // namespace
}  // namespace fem::testing
