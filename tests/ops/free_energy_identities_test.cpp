// The identities of the free-energy read (docs/notation.md), on softmax_read with random scores, values and beta.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/kernel_test.h"
#include "support/one_query.h"

namespace fem::testing {
namespace {

RC_GTEST_PROP(FreeEnergy, LiesBetweenMeanAndMaximum, ()) {
  const OneQuery p = random_query();
  const at::Tensor highest = p.value.amax(0);
  RC_ASSERT(holds(p.mean <= p.free_energy + kSlack));
  RC_ASSERT(holds(p.free_energy <= highest + kSlack));
  const at::Tensor weight_of_highest = p.prior.squeeze(1).index_select(0, p.value.argmax(0));
  RC_ASSERT(holds(highest + weight_of_highest.log() / p.beta <= p.free_energy + kSlack));
}

RC_GTEST_PROP(FreeEnergy, IsExpectedValuePlusOrMinusDivergence, ()) {
  const OneQuery p = random_query();
  RC_ASSERT(same((p.prior * p.value).sum(0) + divergence(p.prior, p.posterior) / p.beta, p.free_energy));
  RC_ASSERT(same((p.posterior * p.value).sum(0) - divergence(p.posterior, p.prior) / p.beta, p.free_energy));
}

RC_GTEST_PROP(FreeEnergy, PosteriorConcentratesOnTheMaximum, ()) {
  const OneQuery p = random_query();
  RC_PRE(p.value.size(0) > 1);
  const auto [sorted, order] = p.value.sort(0, /*descending=*/true);
  const at::Tensor margin = sorted[0] - sorted[1];
  const at::Tensor best = order.slice(0, 0, 1);
  const at::Tensor p_best = p.prior.expand_as(p.value).gather(0, best).squeeze(0);
  const at::Tensor q_best = p.posterior_at(p.beta).gather(0, best).squeeze(0);
  RC_ASSERT(holds(1 - q_best <= (1 - p_best) / p_best * (-p.beta * margin).exp() + kSlack));
}

RC_GTEST_PROP(FreeEnergy, GradientsAreThePosteriorAndTheDivergence, ()) {
  const OneQuery p = random_query();
  const at::Tensor scores = p.scores.clone().requires_grad_(), value = p.value.clone().requires_grad_();
  const at::Tensor beta = p.beta.clone().requires_grad_();
  const at::Tensor free_energy = OneQuery::of(scores, value, beta).free_energy;
  const auto grads = torch::autograd::grad({free_energy.sum()}, {scores, value, beta});
  RC_ASSERT(same(grads[1], p.posterior));  // dF/dv = q: non-negative, sums to one
  RC_ASSERT(holds(grads[1] >= 0) && same(grads[1].sum(0), at::ones_like(p.beta)));
  RC_ASSERT(same(grads[2], divergence(p.posterior, p.prior) / p.beta.square()));
  RC_ASSERT(holds(grads[2] >= -kSlack));
  RC_ASSERT(same(grads[0], ((p.posterior - p.prior) / p.beta).sum(1)));
}

RC_GTEST_PROP(FreeEnergy, HessianIsThePosteriorsCovariance, ()) {
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  const auto n = *rc::gen::inRange<int64_t>(2, 8);
  const auto options = at::TensorOptions(at::kDouble);
  const OneQuery p(at::randn({n}, options), at::randn({n, 1}, options), at::rand({1}, options) * 3 + 0.1);
  const at::Tensor curvature =
      hessian([&](const at::Tensor& v) { return OneQuery::of(p.scores, v.unsqueeze(1), p.beta).free_energy.sum(); },
              p.value.squeeze(1));
  RC_ASSERT(same(curvature, p.beta * covariance(p.posterior.squeeze(1))));
  RC_ASSERT(at::linalg_matrix_norm(curvature, 2).item<double>() <= p.beta.item<double>() / 2 + kSlack);
}

RC_GTEST_PROP(FreeEnergy, ShiftsAndScalesWithTheValues, ()) {
  const OneQuery p = random_query();
  const double shift = *rc::gen::inRange(-50, 50) / 10.0, scale = *rc::gen::inRange(1, 30) / 10.0;
  RC_ASSERT(same(OneQuery::of(p.scores, p.value + shift, p.beta).free_energy, p.free_energy + shift));
  RC_ASSERT(same(OneQuery::of(p.scores, scale * p.value, p.beta).free_energy,
                 scale * OneQuery::of(p.scores, p.value, scale * p.beta).free_energy));
  const at::Tensor constant = at::full_like(p.value, shift);
  RC_ASSERT(same(OneQuery::of(p.scores, constant, p.beta).free_energy, constant[0]));
}

RC_GTEST_PROP(FreeEnergy, GrowsWithBetaFromMeanTowardsMaximum, ()) {
  const OneQuery p = random_query();
  RC_ASSERT(holds(p.free_energy <= OneQuery::of(p.scores, p.value, p.beta * 1.5).free_energy + kSlack));
  const double small = 1e-4;
  const at::Tensor variance = (p.prior * (p.value - p.mean).square()).sum(0);
  const at::Tensor expected = p.mean + small / 2 * variance;
  const at::Tensor near_zero = OneQuery::of(p.scores, p.value, at::full_like(p.beta, small)).free_energy;
  // The next term of the expansion is beta^2 times a third cumulant; rounding is divided by beta.
  RC_ASSERT(holds((near_zero - expected).abs() <= 100 * small * small + 1e-15 / small * 10));
}

RC_GTEST_PROP(FreeEnergy, DoesNotCareForTheOrderOfKeys, ()) {
  const OneQuery p = random_query();
  const at::Tensor order = at::randperm(p.value.size(0));
  const Read shuffled = OneQuery::of(p.scores.index_select(0, order), p.value.index_select(0, order), p.beta);
  RC_ASSERT(same(shuffled.free_energy, p.free_energy));
  RC_ASSERT(same(shuffled.mean, p.mean));
}

RC_GTEST_PROP(FreeEnergy, ChannelsChooseTheirTokensIndependently, ()) {
  // Any pattern of winners, one per channel, is reached with one shared prior: the read is not convex in the tokens.
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  const int64_t n = *rc::gen::inRange<int64_t>(2, 12), width = *rc::gen::inRange<int64_t>(1, 8);
  const at::Tensor winner = at::randint(n, {1, width}, at::kLong);
  const at::Tensor value = at::zeros({n, width}, at::kDouble).scatter(0, winner, 1.0).requires_grad_();
  const at::Tensor beta = at::full({width}, 30.0, at::kDouble);
  const at::Tensor free_energy = OneQuery::of(at::zeros({n}, at::kDouble), value, beta).free_energy;
  const at::Tensor posterior = torch::autograd::grad({free_energy.sum()}, {value})[0];
  RC_ASSERT(at::equal(posterior.argmax(0), winner.squeeze(0)));
  RC_ASSERT(holds(free_energy >= 1 - std::log(static_cast<double>(n)) / 30 - kSlack));
}

using FreeEnergyKernel = KernelTest;
FEM_ON_EVERY_ISA(FreeEnergyKernel);

TEST_P(FreeEnergyKernel, KeepsTheOrderAndThePosteriorInFloat32) {
  const at::Tensor query = at::randn({2, 200, 2, 8}), key = at::randn({2, 200, 2, 8});
  const at::Tensor value = at::randn({2, 200, 2, 5}).requires_grad_(), beta = at::rand({2, 5}) * 3 + 0.2;
  const SoftmaxRead read = softmax_read(query, key, value, beta);
  const at::Tensor highest = std::get<0>(value.cummax(1));
  const double slack = 64 * kEps32;
  EXPECT_TRUE(holds(read.mean <= read.free_energy + slack));
  EXPECT_TRUE(holds(read.free_energy <= highest + slack));
  // The gradient of one query's free energy with respect to the values is a probability vector over what it sees.
  at::Tensor seed = at::zeros_like(read.free_energy);
  seed.select(1, 123).fill_(1);
  const at::Tensor posterior = torch::autograd::grad({read.free_energy}, {value}, {seed})[0];
  EXPECT_TRUE(holds(posterior >= 0));
  EXPECT_TRUE(close(posterior.sum(1), at::ones({2, 2, 5}), kFloat32Gradient));
  EXPECT_TRUE(holds(posterior.slice(1, 124) == 0));
}

}  // namespace
}  // namespace fem::testing
