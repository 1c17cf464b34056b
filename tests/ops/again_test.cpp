#include "ops/modulate/again.h"

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
std::vector<at::Tensor> inputs_of(at::ScalarType dtype, int64_t tokens) {
  const auto random = [&](at::IntArrayRef shape) { return at::randn(shape, dtype); };
  return {random({2, tokens, kHeads, kWidth}),      random({2, tokens, kHeads, kWidth}),
          random({2, tokens, kHeads, kWidth}),      random({2, tokens, kHidden}),
          random({kHidden, kHeads * kWidth}) * 0.3, at::rand({kHeads, kWidth}, dtype) + 0.5};
}

// Returns the read, and how many hold the first modulated input afterwards: only this function, if it is made again.
struct Outcome {
  std::vector<at::Tensor> read;
  size_t holders;
};
Outcome read_with(Reader reader, const std::vector<at::Tensor>& in) {
  const Rotation rotation = rotation_of(at::arange(in[0].size(1)), kWidth);
  const bool positive = reader == Reader::kLinear;
  const AfterModulation turned{rotation, positive ? std::optional(0.1) : std::nullopt, {}};
  const at::Tensor query = modulate(in[0], {in[3], in[4]}, turned), key = modulate(in[1], {in[3], in[4]}, turned);
  const at::Tensor value = modulate(in[2], {in[3], in[4]}, {{}, {}, 3 / in[5]});
  Outcome outcome{};
  switch (reader) {
    case Reader::kSoftmax: {
      const Read read = softmax_read(query, key, value, in[5]);
      outcome.read = {read.mean, read.free_energy};
      break;
    }
    case Reader::kLinear: {
      const Read read = linear_read(query, key, value, in[5]);
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
Gradients gradients_of(Reader reader, const std::vector<at::Tensor>& inputs, bool again,
                       const Seed& seed = plain_seed) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : inputs) leaves.push_back(x.detach().clone().requires_grad_());
  std::optional<MakeAgainGuard> guard;
  if (again) guard.emplace();
  const Outcome outcome = read_with(reader, leaves);
  guard.reset();
  std::vector<at::Tensor> grads;
  for (const at::Tensor& y : outcome.read) grads.push_back(seed(y.detach()));
  return {torch::autograd::grad(outcome.read, leaves, grads), outcome.holders};
}

class MakeAgain : public ::testing::TestWithParam<Reader> {};
INSTANTIATE_TEST_SUITE_P(Reader, MakeAgain, ::testing::Values(Reader::kSoftmax, Reader::kLinear, Reader::kGates));

TEST_P(MakeAgain, GivesTheSameGradientsWithoutKeepingTheInputs) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto inputs = inputs_of(dtype, 70);
    const Gradients kept = gradients_of(GetParam(), inputs, false), again = gradients_of(GetParam(), inputs, true);
    EXPECT_GT(kept.holders, 1);
    EXPECT_EQ(again.holders, 1);
    for (size_t i = 0; i < kept.tensors.size(); ++i)
      EXPECT_TRUE(close(again.tensors[i], kept.tensors[i], gradient_tolerance(dtype))) << i;
  }
}

// Three threads divide the two rows' heads of a group: both are gathered for all, and the query is let go.
TEST(MakeAgainInGroups, HeadsDividedAmongThreadsGiveTheSameGradients) {
  const ScopedThreads scope(3);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto inputs = inputs_of(dtype, 450);
    const Gradients kept = gradients_of(Reader::kSoftmax, inputs, false);
    const Gradients again = gradients_of(Reader::kSoftmax, inputs, true);
    const Gradients repeated = gradients_of(Reader::kSoftmax, inputs, true);
    for (size_t i = 0; i < kept.tensors.size(); ++i) {
      EXPECT_TRUE(close(again.tensors[i], kept.tensors[i], gradient_tolerance(dtype))) << i;
      EXPECT_TRUE(at::equal(again.tensors[i], repeated.tensors[i])) << i << ": a second run differs";
    }
  }
}

// A gradient that is a negative view holds the numbers of its opposite: the kernels must not be given it as it is.
TEST(MakeAgainInGroups, GradientsThatAreNotPlainTensorsGoThroughTheDispatcher) {
  const auto inputs = inputs_of(at::kFloat, 70);
  const Seed negative_view = [](const at::Tensor& y) { return at::_neg_view(-plain_seed(y)); };
  const Gradients expected = gradients_of(Reader::kSoftmax, inputs, true);
  const Gradients actual = gradients_of(Reader::kSoftmax, inputs, true, negative_view);
  for (size_t i = 0; i < expected.tensors.size(); ++i)
    EXPECT_TRUE(close(actual.tensors[i], expected.tensors[i], gradient_tolerance(at::kFloat))) << i;
}

TEST_P(MakeAgain, CanBeDifferentiatedTwice) {
  const auto function = [&](const std::vector<at::Tensor>& in) {
    const MakeAgainGuard guard;
    return read_with(GetParam(), in).read;
  };
  EXPECT_TRUE(gradients_match(function, inputs_of(at::kDouble, 3), /*second_order=*/true));
}

// The layer makes large inputs again and keeps small ones: a batch at once is large, its rows one by one are small.
TEST(MakeAgainInTheLayer, LargeAndSmallBatchesGiveTheSameGradients) {
  MixerOptions options;
  options.n_embd = 128;
  options.n_head = 2;
  options.conv_hidden = 6;
  FreeEnergyMixer mixer = random_mixer(options, at::kFloat);
  for (at::Tensor& parameter : mixer->parameters()) parameter.set_data(parameter.detach() * 0.2);
  const at::Tensor x = at::randn({256, 32, options.n_embd});  // 2^20 elements
  const auto gradients = [&](int64_t parts) {
    mixer->zero_grad();
    for (const at::Tensor& part : x.chunk(parts)) mixer(part).square().sum().backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : mixer->parameters()) all.push_back(parameter.grad().clone());
    return all;
  };
  const std::vector<at::Tensor> at_once = gradients(1), apart = gradients(2);
  for (size_t i = 0; i < apart.size(); ++i)
    EXPECT_TRUE(close(at_once[i], apart[i], gradient_tolerance(at::kFloat))) << mixer->named_parameters().keys()[i];
}

}  // namespace
}  // namespace fem::testing
