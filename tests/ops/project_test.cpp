#include "fem/ops/project.h"

#include <torch/csrc/autograd/autograd.h>

#include "ops/project/project.h"
#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using Project = KernelTest;
FEM_ON_EVERY_ISA(Project);

struct Case {
  int64_t rows, depth;
  std::vector<int64_t> widths;
  bool biased = true;
};

// Every path: one to four rows, some, many; a depth of one part and of several; widths that end inside a panel.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {1, 1, {1}},           {1, 37, {5, 64}},         {3, 64, {33, 1, 16}, false}, {4, 700, {70}},
      {5, 24, {48, 49}},     {16, 513, {100}},         {63, 40, {31, 97}, false},   {64, 17, {256}},
      {65, 64, {64, 64}},    {111, 96, {7, 300}},      {200, 1030, {40}},           {1000, 33, {97, 530}, false},
      {193, 600, {17, 512}}, {600, 512, {256, 1, 24}},
  };
  return all;
}

struct Inputs {
  at::Tensor x;
  std::vector<at::Tensor> weights, biases, grads;

  explicit Inputs(const Case& c) : x(at::randn({c.rows, c.depth})) {
    for (const int64_t width : c.widths) {
      weights.push_back(at::randn({width, c.depth}));
      if (c.biased) biases.push_back(at::randn({width}));
      grads.push_back(at::randn({c.rows, width}));
    }
  }
};

// Outputs, then the gradients of x, weights and biases, in dtype on inputs rounded to low.
template <typename Function>
std::vector<at::Tensor> run(Function function, const Inputs& in, at::ScalarType low, at::ScalarType dtype) {
  std::vector<at::Tensor> leaves, grads;
  const auto leaf = [&](const at::Tensor& x) {
    leaves.push_back(x.to(low).to(dtype).detach().clone().requires_grad_());
    return leaves.back();
  };
  const at::Tensor x = leaf(in.x);
  std::vector<at::Tensor> weights, biases;
  for (const at::Tensor& weight : in.weights) weights.push_back(leaf(weight));
  for (const at::Tensor& bias : in.biases) biases.push_back(leaf(bias));
  for (const at::Tensor& g : in.grads) grads.push_back(g.to(low).to(dtype));
  std::vector<at::Tensor> out = function(x, weights, biases);
  const std::vector<at::Tensor> gradients = torch::autograd::grad(out, leaves, grads);
  out.insert(out.end(), gradients.begin(), gradients.end());
  return out;
}

TEST_P(Project, KernelMatchesTheDefinitionForwardAndBackward) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Case& c : cases()) {
      SCOPED_TRACE(::testing::Message() << at::toString(dtype) << " rows " << c.rows << " depth " << c.depth);
      const Inputs in(c);
      const auto actual = run(project, in, dtype, dtype);
      const auto definition = [](const at::Tensor& x, const TensorVector& weights, const TensorVector& biases) {
        return ProjectOp::definition({x, weights, biases}).y;
      };
      const auto expected = run(definition, in, dtype, at::kDouble);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        const bool output = i < c.widths.size();
        EXPECT_TRUE(close(actual[i], expected[i], output ? forward_tolerance(dtype) : gradient_tolerance(dtype))) << i;
      }
    }
}

TEST_P(Project, ResultsDoNotDependOnThreads) {
  for (const int64_t rows : {2, 40, 700}) {
    const Inputs in(Case{rows, 90, {100, 130}});
    const auto with = [&](int threads) {
      ScopedThreads scope(threads);
      return run(project, in, at::kFloat, at::kFloat);
    };
    const auto one = with(1);
    for (const int threads : {2, 3}) {
      const auto more = with(threads);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], more[i])) << rows << " " << i;
    }
  }
}

TEST_P(Project, StridedAndEmptyInputsGiveTheSame) {
  const at::Tensor x = at::randn({2, 50, 24}), weight = at::randn({40, 24}), bias = at::randn({40});
  const at::Tensor expected = project(x, {weight}, {bias})[0];
  EXPECT_EQ(expected.sizes(), (std::vector<int64_t>{2, 50, 40}));
  EXPECT_TRUE(at::equal(project(x.transpose(0, 1).contiguous().transpose(0, 1), {weight}, {bias})[0], expected));
  EXPECT_TRUE(
      at::equal(project(x, {weight.t().contiguous().t()}, {at::stack({bias, bias}, 1).select(1, 0)})[0], expected));
  const at::Tensor none = x.slice(1, 0, 0).detach().requires_grad_(), w = weight.detach().requires_grad_();
  const at::Tensor y = project(none, {w}, {bias})[0];
  y.sum().backward();
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 0, 40}));
  EXPECT_TRUE(at::equal(w.grad(), at::zeros_like(w)));
}

TEST_P(Project, NaNStaysInItsRow) {
  for (const int64_t rows : {3, 20, 200}) {
    at::Tensor x = at::randn({rows, 32});
    x[1][7] = NAN;
    const at::Tensor y = project(x, {at::randn({20, 32})}, {})[0];
    EXPECT_TRUE(y[1].isnan().all().item<bool>());
    EXPECT_FALSE(at::cat({y.slice(0, 0, 1), y.slice(0, 2)}).isnan().any().item<bool>());
  }
}

TEST(ProjectDefinition, GradientsMatchFiniteDifferencesTwice) {
  const auto function = [](const std::vector<at::Tensor>& in) {
    const auto y = project(in[0], {in[1], in[2]}, {in[3], in[4]});
    return std::vector<at::Tensor>{y[0].square(), y[1].exp()};  // or second derivatives of the biases would be 0
  };
  const auto random = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  EXPECT_TRUE(gradients_match(function, {random({2, 3, 4}), random({5, 4}), random({2, 4}), random({5}), random({2})},
                              /*second_order=*/true));
}

TEST(ProjectErrors, SayWhatWasExpectedAndWhatCame) {
  const at::Tensor x = at::randn({3, 8}), weight = at::randn({4, 8});
  EXPECT_TRUE(fails_with("project: expected weight 0 of shape [*, 8] to match x [3, 8], got [4, 9]",
                         [&] { project(x, {at::randn({4, 9})}); }));
  EXPECT_TRUE(fails_with("project: expected bias 0 of shape [4] to match its weight [4, 8], got [5]",
                         [&] { project(x, {weight}, {at::randn({5})}); }));
  EXPECT_TRUE(fails_with("project: expected one bias for each of 2 weights, or none, got 1",
                         [&] { project(x, {weight, weight}, {at::randn({4})}); }));
  EXPECT_TRUE(fails_with("project: expected weight 0 as Float like x, got Double",
                         [&] { project(x, {weight.to(at::kDouble)}); }));
}

}  // namespace
}  // namespace fem::testing
