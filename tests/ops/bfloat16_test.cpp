// bfloat16 at every inverse temperature: no read, whole or streamed, forward or backward, is further from float64 than
// some roundings of the result, nor than twice what its definition in bfloat16 is.
#include <torch/csrc/autograd/autograd.h>

#include "fem/ops/channel_read.h"
#include "fem/ops/linear_read.h"
#include "fem/ops/softmax_read.h"
#include "fem/ops/ssm_read.h"
#include "support/kernel_test.h"
#include "support/matrix_unit.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using Bfloat16 = KernelTest;
FEM_ON_EVERY_ISA(Bfloat16);

constexpr double kBetas[] = {0.01, 0.1, 1, 10, 50};
constexpr int64_t kTokens = 300, kHeads = 2, kKeyWidth = 32, kValueWidth = 16, kRank = 4;  // more than a block of keys
constexpr double kCap = 40;

using Tensors = std::vector<at::Tensor>;

at::Tensor of_tokens(int64_t width) { return at::randn({1, kTokens, kHeads, width}); }

// A read and its definition as functions of value, beta and the prior's own inputs.
struct Subject {
  std::string name;
  std::vector<std::string> names;  // of the prior's inputs
  Tensors (*prior)();
  RecurrentRead (*read)(const Tensors& in, const RecurrentReadOptions& options);
  RecurrentRead (*definition)(const Tensors& in, const RecurrentReadOptions& options);
};

template <auto function>
RecurrentRead softmax(const Tensors& in, const RecurrentReadOptions& options) {
  return {function(in[2], in[3], in[0], in[1], {.causal = options.causal}), {}, {}};
}
template <auto function>
RecurrentRead linear(const Tensors& in, const RecurrentReadOptions& options) {
  return function(in[2], in[3], in[0], in[1], in[4], options);
}
template <auto function>
RecurrentRead channel(const Tensors& in, const RecurrentReadOptions& options) {
  return function(in[0], in[1], in[2], in[3], options);
}
template <auto function>
RecurrentRead ssm(const Tensors& in, const RecurrentReadOptions& options) {
  return function(in[0], in[1], {in[2], in[3], in[4], in[5], in[6]}, options);
}

const Subject kSoftmax{"softmax",
                       {"query", "key"},
                       [] { return Tensors{2 * of_tokens(kKeyWidth), of_tokens(kKeyWidth)}; },
                       softmax<softmax_read>,
                       softmax<softmax_read_definition>};
const Subject kLinear{"linear",
                      {"query", "key", "log_decay"},
                      [] {
                        return Tensors{of_tokens(kKeyWidth).abs(), of_tokens(kKeyWidth).abs(),
                                       at::randn({1, kTokens, kHeads}).abs() * -0.2};
                      },
                      linear<linear_read>,
                      linear<linear_read_definition>};
const Subject kChannel{"channel",
                       {"log_weight", "log_decay"},
                       [] { return Tensors{2 * of_tokens(kValueWidth), -at::exp(2 * of_tokens(kValueWidth) - 2)}; },
                       channel<channel_read>,
                       channel<channel_read_definition>};
const Subject kSsm{"ssm",
                   {"delta", "A", "B", "C", "D"},
                   [] {
                     return Tensors{of_tokens(kValueWidth).square() * 0.1, -at::rand({kHeads, kValueWidth, kRank}),
                                    at::rand({1, kTokens, kRank}), at::rand({1, kTokens, kRank}),
                                    at::rand({kHeads, kValueWidth}) * 0.1};
                   },
                   ssm<ssm_read>,
                   ssm<ssm_read_definition>};

// Of every subject at a beta: values up to the cap, and all in bfloat16.
Tensors inputs_of(const Subject& subject, double beta) {
  Tensors in{of_tokens(kValueWidth).clamp(-kCap / beta, kCap / beta),
             beta * (0.9 + 0.1 * at::rand({kHeads, kValueWidth}))};
  for (const at::Tensor& x : subject.prior()) in.push_back(x);
  for (at::Tensor& x : in) x = x.to(at::kBFloat16);
  return in;
}

Tensors leaves(const Tensors& in, at::ScalarType dtype) {
  Tensors out;
  for (const at::Tensor& x : in) out.push_back(x.to(dtype).clone().requires_grad_());
  return out;
}

// mean and free energy, then the gradients of all inputs.
template <typename Function>
Tensors run(Function&& read, const Tensors& in, const Tensors& seeds) {
  const RecurrentRead out = read(in);
  Tensors all{out.mean, out.free_energy};
  const at::ScalarType dtype = in[0].scalar_type();
  EXPECT_EQ(out.free_energy.scalar_type(), dtype);
  for (const at::Tensor& gradient : torch::autograd::grad(all, in, {seeds[0].to(dtype), seeds[1].to(dtype)}))
    all.push_back(gradient);
  return all;
}

void expect_as_exact_as_the_definition(const Subject& subject, bool causal) {
  for (const double beta : kBetas) {
    SCOPED_TRACE(::testing::Message() << subject.name << (causal ? "" : " from both sides") << ", beta " << beta);
    const Tensors in = inputs_of(subject, beta);
    const Tensors seeds{of_tokens(kValueWidth).to(at::kBFloat16), of_tokens(kValueWidth).to(at::kBFloat16)};
    const auto by = [&](auto function, at::ScalarType dtype) {
      return run([&](const Tensors& x) { return function(x, {.causal = causal}); }, leaves(in, dtype), seeds);
    };
    const Tensors exact = by(subject.definition, at::kDouble), plain = by(subject.definition, at::kBFloat16);
    const Tensors actual = by(subject.read, at::kBFloat16);
    std::vector<std::string> names{"mean", "free energy", "gradient of value", "gradient of beta"};
    for (const std::string& name : subject.names) names.push_back("gradient of " + name);
    // The gradient of beta is a difference of two sums; of one of them the terms are dF F / beta.
    const double of_beta = (seeds[1] * exact[1] / in[1]).square().sum(1).mean().sqrt().item<double>();
    for (size_t i = 0; i < names.size(); ++i) {
      EXPECT_TRUE(about_as_exact(actual[i], plain[i], exact[i], kTimesPlainBfloat16)) << names[i];
      EXPECT_TRUE(close_on_average(actual[i], exact[i], kBfloat16OnAverage, i == 3 ? of_beta : 0)) << names[i];
    }
  }
}

// The reads of a few tokens a call, most of them alone.
template <typename Read>
RecurrentRead in_steps(Read&& read) {
  Tensors means, energies;
  for (int64_t begin = 0, step = 1, calls = 0; begin < kTokens; begin += step, ++calls) {
    step = std::min(calls % 40 == 39 ? kTokens / 4 : calls % 10 == 9 ? 5 : 1, kTokens - begin);
    const fem::Read out = read(begin, begin + step);
    means.push_back(out.mean);
    energies.push_back(out.free_energy);
  }
  return {{at::cat(means, 1), at::cat(energies, 1)}, {}, {}};
}

RecurrentRead streamed(const Subject& subject, const Tensors& in) {
  const auto cut = [](const at::Tensor& x, int64_t begin, int64_t end) {
    return x.size(1) == kTokens ? x.slice(1, begin, end) : x;
  };
  RecurrentReadOptions options;
  return in_steps([&](int64_t begin, int64_t end) {
    Tensors part;
    for (const at::Tensor& x : in) part.push_back(cut(x, begin, end));
    if (subject.name == "softmax") part[0] = cut(in[0], 0, end), part[3] = cut(in[3], 0, end);  // value and key: caches
    const RecurrentRead out = subject.read(part, options);
    if (out.state.defined()) options.initial = out.state;
    return out;
  });
}

void expect_stream_as_exact_as_the_definition(const Subject& subject) {
  const at::NoGradGuard no_gradients;
  for (const double beta : kBetas) {
    SCOPED_TRACE(::testing::Message() << subject.name << " streamed, beta " << beta);
    const Tensors in = inputs_of(subject, beta);
    const RecurrentRead exact = subject.definition(leaves(in, at::kDouble), {});
    const RecurrentRead plain = subject.definition(in, {}), actual = streamed(subject, in);
    for (const auto part : {&RecurrentRead::mean, &RecurrentRead::free_energy}) {
      EXPECT_TRUE(about_as_exact(actual.*part, plain.*part, exact.*part, kTimesPlainBfloat16));
      EXPECT_TRUE(close_on_average(actual.*part, exact.*part, kBfloat16OnAverage));
    }
  }
}

TEST_P(Bfloat16, ReadsAreAsExactAsTheirDefinitionsAtEveryBeta) {
  for (const bool causal : {true, false})
    for (const Subject& subject : {kSoftmax, kLinear, kChannel, kSsm})
      expect_as_exact_as_the_definition(subject, causal);
}

TEST_P(Bfloat16, StreamedReadsAreAsExactAsTheirDefinitionsAtEveryBeta) {
  for (const Subject& subject : {kSoftmax, kLinear, kChannel, kSsm}) expect_stream_as_exact_as_the_definition(subject);
}

TEST_P(Bfloat16, SoftmaxIsAsExactOnAMatrixUnitOfPlainLoops) {
  const PlainMatrixUnit unit;
  expect_as_exact_as_the_definition(kSoftmax, /*causal=*/true);
  expect_stream_as_exact_as_the_definition(kSoftmax);
}

TEST_P(Bfloat16, SoftmaxIsAsExactWithoutAMatrixUnit) {
  const NoMatrixUnit none;
  expect_as_exact_as_the_definition(kSoftmax, /*causal=*/true);
  expect_stream_as_exact_as_the_definition(kSoftmax);
}

}  // namespace
}  // namespace fem::testing
