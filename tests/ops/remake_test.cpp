#include "ops/remake.h"

#include <torch/csrc/autograd/autograd.h>

#include "fem/ops/gated_read.h"
#include "fem/ops/linear_read.h"
#include "fem/ops/modulate.h"
#include "fem/ops/softmax_read.h"
#include "mixer/random_mixer.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

enum class Reader { kSoftmax, kLinear, kGates };

constexpr int64_t kHeads = 5, kWidth = 6, kHidden = 3;

// Three inputs x, the hidden units and the weight that modulate all of them, and beta, which also gives the value's
// limit.
std::vector<at::Tensor> inputs_of(at::ScalarType dtype, int64_t tokens, int64_t batch = 2) {
  const auto random = [&](at::IntArrayRef shape) { return at::randn(shape, dtype); };
  return {random({batch, tokens, kHeads, kWidth}),  random({batch, tokens, kHeads, kWidth}),
          random({batch, tokens, kHeads, kWidth}),  random({batch, tokens, kHidden}),
          random({kHidden, kHeads * kWidth}) * 0.3, at::rand({kHeads, kWidth}, dtype) + 0.5};
}

// What of all this a token may see.
struct Visible {
  bool causal = true;
  std::optional<int64_t> window = std::nullopt;  // softmax only
  std::optional<at::Tensor> key_mask = std::nullopt, cu_seqlens = std::nullopt;
};

// Returns the read, and how many hold the first modulated input afterwards: only this function, if it is remade.
struct Outcome {
  std::vector<at::Tensor> read;
  size_t holders;
};
Outcome read_with(Reader reader, const std::vector<at::Tensor>& in, bool recompute, const Visible& visible = {}) {
  const Rotation rotation = rotation_of(at::arange(in[0].size(1)), kWidth);
  const bool positive = reader == Reader::kLinear;
  const AfterModulation turned{rotation, positive ? std::optional(0.1) : std::nullopt, {}};
  const Modulation modulation{in[3], in[4]};
  const at::Tensor query = modulate(in[0], modulation, turned, recompute);
  const at::Tensor key = modulate(in[1], modulation, turned, recompute);
  const at::Tensor value = modulate(in[2], modulation, {{}, {}, 3 / in[5]}, recompute);
  EXPECT_EQ(is_remade(query), recompute && query.requires_grad());
  Outcome outcome{};
  switch (reader) {
    case Reader::kSoftmax: {
      const Read read = softmax_read(query, key, value, in[5],
                                     {{}, visible.causal, visible.window, visible.key_mask, visible.cu_seqlens});
      outcome.read = {read.mean, read.free_energy};
      break;
    }
    case Reader::kLinear: {
      const Read read = linear_read(query, key, value, in[5], std::nullopt,
                                    {visible.causal, visible.key_mask, visible.cu_seqlens, {}});
      outcome.read = {read.mean, read.free_energy};
      break;
    }
    case Reader::kGates:
      outcome.read = {gated_read({in[2], in[1]}, query, value) * in[5].sum()};
  }
  outcome.holders = query.use_count();
  return outcome;
}

struct Gradients {
  std::vector<at::Tensor> tensors;
  size_t holders;
};
using Seed = std::function<at::Tensor(const at::Tensor& output)>;
at::Tensor plain_seed(const at::Tensor& y) { return at::ones_like(y) + 0.1 * y; }
Gradients gradients_of(Reader reader, const std::vector<at::Tensor>& inputs, bool recompute,
                       const Seed& seed = plain_seed, const Visible& visible = {}) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : inputs) leaves.push_back(x.detach().clone().requires_grad_());
  const Outcome outcome = read_with(reader, leaves, recompute, visible);
  std::vector<at::Tensor> grads;
  for (const at::Tensor& y : outcome.read) grads.push_back(seed(y.detach()));
  return {torch::autograd::grad(outcome.read, leaves, grads), outcome.holders};
}

class Remake : public ::testing::TestWithParam<Reader> {};
INSTANTIATE_TEST_SUITE_P(Reader, Remake, ::testing::Values(Reader::kSoftmax, Reader::kLinear, Reader::kGates));

TEST_P(Remake, GivesTheSameGradientsWithoutKeepingTheInputs) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto inputs = inputs_of(dtype, 70);
    const Gradients kept = gradients_of(GetParam(), inputs, false), remade = gradients_of(GetParam(), inputs, true);
    EXPECT_GT(kept.holders, 1);
    EXPECT_EQ(remade.holders, 1);
    for (size_t i = 0; i < kept.tensors.size(); ++i)
      EXPECT_TRUE(close(remade.tensors[i], kept.tensors[i], gradient_tolerance(dtype))) << i;
  }
}

// Masks, windows and the borders of packed sequences reach the gradients of inputs that are made again, too.
TEST(RemakeOfPart, WhatATokenMayNotSeeStaysUnseen) {
  const int64_t tokens = 130;
  const at::Tensor mask = at::rand({2, tokens}) > 0.3, row = mask.slice(0, 0, 1),
                   borders = at::tensor({0, 3, 3, 70, 130});
  struct Case {
    const char* name;
    Visible visible;
    int64_t batch;
    bool linear;
  };
  for (const Case& c : std::vector<Case>{{"masked", {true, {}, mask, {}}, 2, true},
                                         {"encoder_masked", {false, {}, mask, {}}, 2, true},
                                         {"window", {true, 9, {}, {}}, 2, false},
                                         {"encoder_window_masked", {false, 9, mask, {}}, 2, false},
                                         {"packed", {true, {}, {}, borders}, 1, true},
                                         {"packed_encoder", {false, {}, {}, borders}, 1, true},
                                         {"packed_window_masked", {true, 9, row, borders}, 1, false}})
    for (const Reader reader : {Reader::kSoftmax, Reader::kLinear})
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
        if (reader == Reader::kLinear && !c.linear) continue;
        SCOPED_TRACE(std::string(c.name) + (reader == Reader::kLinear ? " linear " : " softmax ") +
                     at::toString(dtype));
        const auto inputs = inputs_of(dtype, tokens, c.batch);
        const Gradients kept = gradients_of(reader, inputs, false, plain_seed, c.visible);
        const Gradients remade = gradients_of(reader, inputs, true, plain_seed, c.visible);
        const Gradients of_all = gradients_of(reader, inputs, true);
        EXPECT_EQ(remade.holders, 1);
        for (size_t i = 0; i < kept.tensors.size(); ++i) {
          EXPECT_TRUE(close(remade.tensors[i], kept.tensors[i], gradient_tolerance(dtype))) << i;
          EXPECT_FALSE(close(of_all.tensors[i], kept.tensors[i], gradient_tolerance(dtype)))
              << i << " sees all the same";
        }
      }
}

// Three threads divide the two rows' heads of a group: both are gathered for all, and the query is let go.
TEST(RemakeInGroups, HeadsDividedAmongThreadsGiveTheSameGradients) {
  const ScopedThreads scope(3);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto inputs = inputs_of(dtype, 450);
    const Gradients kept = gradients_of(Reader::kSoftmax, inputs, false);
    const Gradients remade = gradients_of(Reader::kSoftmax, inputs, true);
    const Gradients repeated = gradients_of(Reader::kSoftmax, inputs, true);
    for (size_t i = 0; i < kept.tensors.size(); ++i) {
      EXPECT_TRUE(close(remade.tensors[i], kept.tensors[i], gradient_tolerance(dtype))) << i;
      EXPECT_TRUE(at::equal(remade.tensors[i], repeated.tensors[i])) << i << ": a second run differs";
    }
  }
}

// As in a layer whose values are narrow: the query is made again, key and value are kept.
TEST(RemakeInGroups, InputsKeptBesideRemadeOnesGiveTheSameGradients) {
  const auto gradients = [](const std::vector<at::Tensor>& inputs, bool recompute) {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& x : inputs) leaves.push_back(x.detach().clone().requires_grad_());
    const at::Tensor query = modulate(leaves[0], {leaves[3], leaves[4]}, {}, recompute);
    const Read read = softmax_read(query, leaves[1], leaves[2], leaves[5]);
    return torch::autograd::grad({read.mean.square().sum() + read.free_energy.square().sum()}, leaves);
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const auto inputs = inputs_of(dtype, 130);
    const auto kept = gradients(inputs, false), remade = gradients(inputs, true);
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(close(remade[i], kept[i], gradient_tolerance(dtype))) << i;
  }
}

// A gradient that is a negative view holds the numbers of its opposite: the kernels must not be given it as it is.
TEST(RemakeInGroups, GradientsThatAreNotPlainTensorsGoThroughTheDispatcher) {
  const auto inputs = inputs_of(at::kFloat, 70);
  const Seed negative_view = [](const at::Tensor& y) { return at::_neg_view(-plain_seed(y)); };
  const Gradients expected = gradients_of(Reader::kSoftmax, inputs, true);
  const Gradients actual = gradients_of(Reader::kSoftmax, inputs, true, negative_view);
  for (size_t i = 0; i < expected.tensors.size(); ++i)
    EXPECT_TRUE(close(actual.tensors[i], expected.tensors[i], gradient_tolerance(at::kFloat))) << i;
}

TEST_P(Remake, CanBeDifferentiatedTwice) {
  const auto function = [&](const std::vector<at::Tensor>& in) {
    return read_with(GetParam(), in, /*recompute=*/true).read;
  };
  EXPECT_TRUE(gradients_match(function, inputs_of(at::kDouble, 3), /*second_order=*/true));
}

// The layer makes large inputs again and keeps small ones: a batch at once is large, its halves are small.
class RemakeInTheLayer : public ::testing::TestWithParam<PriorType> {
 protected:
  RemakeInTheLayer() {
    at::manual_seed(11);
    options_.n_embd = 128;
    options_.n_head = 2;
    options_.conv_hidden = 6;
    options_.prior_type = GetParam();
  }

  // Both halves of x, [256, 32, D] or [1, 8192, D], have 2^19 elements.
  void expect_halves_sum_to_the_whole(const at::Tensor& x, const Batch& whole, const Batch& first,
                                      const Batch& second) {
    FreeEnergyMixer mixer = random_mixer(options_, at::kFloat);
    for (at::Tensor& parameter : mixer->parameters()) parameter.set_data(parameter.detach() * 0.2);
    const auto gradients = [&](const std::vector<at::Tensor>& parts, const std::vector<Batch>& batches) {
      mixer->zero_grad();
      for (size_t i = 0; i < parts.size(); ++i) mixer->forward(parts[i], batches[i]).square().sum().backward();
      std::vector<at::Tensor> all;
      for (const at::Tensor& parameter : mixer->parameters()) all.push_back(parameter.grad().clone());
      return all;
    };
    const auto at_once = gradients({x}, {whole});
    const auto apart = gradients(x.chunk(2, x.size(0) == 1 ? 1 : 0), {first, second});
    for (size_t i = 0; i < apart.size(); ++i)
      EXPECT_TRUE(close(at_once[i], apart[i], gradient_tolerance(at::kFloat))) << mixer->named_parameters().keys()[i];
  }

  MixerOptions options_;
};
INSTANTIATE_TEST_SUITE_P(Prior, RemakeInTheLayer, ::testing::ValuesIn(all_priors()),
                         [](const auto& info) { return spelled(info.param); });

TEST_P(RemakeInTheLayer, LargeAndSmallBatchesGiveTheSameGradients) {
  expect_halves_sum_to_the_whole(at::randn({256, 32, options_.n_embd}), {}, {}, {});
}

TEST_P(RemakeInTheLayer, MaskedBatchesGiveTheSameGradients) {
  if (GetParam() == PriorType::kSoftmax) options_.window = 7;
  const at::Tensor mask = at::rand({256, 32}) > 0.3;
  expect_halves_sum_to_the_whole(at::randn({256, 32, options_.n_embd}), {mask, {}}, {mask.slice(0, 0, 128), {}},
                                 {mask.slice(0, 128), {}});
}

TEST_P(RemakeInTheLayer, PackedSequencesGiveTheSameGradients) {
  const at::Tensor borders = at::tensor({0, 1000, 1001, 4096});
  const at::Tensor both = at::cat({borders, borders.slice(0, 1) + 4096});
  expect_halves_sum_to_the_whole(at::randn({1, 8192, options_.n_embd}), {{}, both}, {{}, borders}, {{}, borders});
}

}  // namespace
}  // namespace fem::testing
