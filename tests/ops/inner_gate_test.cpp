// The inner gate as a hidden temperature (the paper's F.2, F.3, G.2, G.4), on gated_read of softmax_read.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "support/one_query.h"

namespace fem::testing {
namespace {

// (1 - lambda) mean + lambda F of one query, as the layer computes it; lambda [V].
at::Tensor gated(const OneQuery& p, const at::Tensor& value, const at::Tensor& lambda) {
  return gate_one(OneQuery::of(p.scores, value, p.beta), (lambda / (1 - lambda)).log());
}

// beta* with F(beta*) = the gated read.
at::Tensor hidden_temperature(const OneQuery& p, const at::Tensor& lambda) {
  return solve([&](const at::Tensor& beta) { return p.at_temperature(beta); }, gated(p, p.value, lambda),
               at::full_like(p.beta, 1e-7), p.beta.clone());
}

RC_GTEST_PROP(InnerGate, IsAUniqueIncreasingHiddenTemperature, ()) {
  const OneQuery p = random_query_of_distinct_values();
  at::Tensor before = at::zeros_like(p.beta);
  for (const double share : {0.2, 0.5, 0.8, 1.0}) {
    const at::Tensor lambda = at::full_like(p.beta, share), beta = hidden_temperature(p, lambda);
    RC_ASSERT(holds((p.at_temperature(beta) - gated(p, p.value, lambda)).abs() <= kSolved));
    RC_ASSERT(holds(beta > before) && holds(beta <= p.beta + kSlack));
    before = beta;
  }
  // Unique: F grows strictly, its slope is a divergence over beta^2.
  RC_ASSERT(holds(p.at_temperature(0.99 * p.beta) < p.free_energy));
}

// F.3: lambda is the share of the divergence per beta that is achieved.
RC_GTEST_PROP(InnerGate, IsTheShareOfTheAchievableDivergence, ()) {
  const OneQuery p = random_query_of_distinct_values();
  const at::Tensor lambda = at::rand_like(p.beta) * 0.9 + 0.05;
  const auto gain = [&](const at::Tensor& beta) { return divergence(p.prior, p.posterior_at(beta)) / beta; };
  RC_ASSERT(holds((gain(hidden_temperature(p, lambda)) - lambda * gain(p.beta)).abs() <= kSolved));
}

// Corollary F.3: d u / d lambda = F'(beta*) d beta* / d lambda, both factors positive.
RC_GTEST_PROP(InnerGate, ReparametrisesTheTemperature, ()) {
  const OneQuery p = random_query_of_distinct_values();
  const at::Tensor lambda = (at::rand_like(p.beta) * 0.8 + 0.1).requires_grad_();
  const at::Tensor by_gate = torch::autograd::grad({gated(p, p.value, lambda).sum()}, {lambda})[0];
  const at::Tensor beta = hidden_temperature(p, lambda.detach()).requires_grad_();
  const at::Tensor slope = torch::autograd::grad({p.at_temperature(beta).sum()}, {beta})[0];
  const double step = 1e-3;
  const at::Tensor rate =
      (hidden_temperature(p, lambda.detach() + step) - hidden_temperature(p, lambda.detach() - step)) / (2 * step);
  RC_ASSERT(holds(slope > 0) && holds(rate > 0));
  RC_ASSERT(holds((slope * rate - by_gate).abs() <= kCoarseDifference * by_gate.abs()));
}

// G.4 (ii): with gates inside (0, 1) a read that is monotone and convex in each channel's values.
RC_GTEST_PROP(InnerGate, LeavesAMonotoneConvexReadBetweenMeanAndMaximum, ()) {
  const OneQuery p = random_query();
  const at::Tensor lambda = at::rand_like(p.beta) * 0.98 + 0.01, other = p.value + at::randn_like(p.value);
  const double share = *rc::gen::inRange(1, 10) / 10.0;
  const auto u = [&](const at::Tensor& value) { return gated(p, value, lambda); };
  RC_ASSERT(holds(u(share * p.value + (1 - share) * other) <= share * u(p.value) + (1 - share) * u(other) + kSlack));
  RC_ASSERT(holds(u(p.value) <= u(p.value + at::rand_like(p.value)) + kSlack));
  RC_ASSERT(holds(u(p.value) >= p.mean - kSlack) && holds(u(p.value) <= p.value.amax(0) + kSlack));
  RC_ASSERT(holds(gated(p, p.value, lambda / 2) <= u(p.value) + kSlack));
}

RC_GTEST_PROP(InnerGate, BendsTheReadByItsShareOfThePosteriorsCovariance, ()) {
  const OneQuery drawn = random_query_of_distinct_values();
  const OneQuery p(drawn.scores.slice(0, 0, 8), drawn.value.slice(0, 0, 8).slice(1, 0, 1), drawn.beta.slice(0, 0, 1));
  const at::Tensor lambda = at::rand_like(p.beta) * 0.98 + 0.01;
  const at::Tensor bend =
      hessian([&](const at::Tensor& v) { return gated(p, v.unsqueeze(1), lambda).sum(); }, p.value.squeeze(1));
  RC_ASSERT(same(bend, lambda * p.beta * covariance(p.posterior.squeeze(1))));
  RC_ASSERT(holds(at::linalg_eigvalsh(bend) >= -kSlack));
}

// G.4 (i), and the outer gate: positive, so that all of this holds for what the layer passes on.
RC_GTEST_PROP(InnerGate, ClosedIsTheMeanAndTheOuterGateOnlyScales, ()) {
  const OneQuery p = random_query();
  const Read read = OneQuery::of(p.scores, p.value, p.beta);
  const at::Tensor closed = at::full_like(p.beta, -1e4), outer = at::randn_like(p.beta) * 4;
  const at::Tensor gate = gate_one({at::ones_like(p.beta), at::ones_like(p.beta)}, closed, outer);
  RC_ASSERT(holds(gate > 0));
  RC_ASSERT(same(gate_one(read, closed, outer), gate * (p.prior * p.value).sum(0)));
}

}  // namespace
}  // namespace fem::testing
