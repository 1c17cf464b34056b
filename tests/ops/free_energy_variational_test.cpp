// The free energy as a maximum over posteriors (the paper's E.1, E.2) and its curvature (E.4), on softmax_read.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/one_query.h"

namespace fem::testing {
namespace {

// Any distribution over the tokens for each channel, from even to almost one token, some with tokens of weight 0.
at::Tensor any_distribution(const at::Tensor& like) {
  const double sharpness = *rc::gen::element(0.0, 0.3, 2.0, 20.0);
  at::Tensor weights = at::softmax(sharpness * at::randn_like(like), 0);
  if (*rc::gen::arbitrary<bool>()) weights = weights * (weights >= weights.mean(0) / 2);
  return weights / weights.sum(0);
}

RC_GTEST_PROP(FreeEnergy, IsTheMaximumOverPosteriorsOfValueLessDivergence, ()) {
  const OneQuery p = random_query();
  const auto objective = [&](const at::Tensor& q) { return (q * p.value).sum(0) - divergence(q, p.prior) / p.beta; };
  const at::Tensor best = p.posterior_at(p.beta), other = any_distribution(p.value);
  RC_ASSERT(same(objective(best), p.free_energy));
  RC_ASSERT(holds(objective(other) <= p.free_energy + kSlack));
  // What another loses is its divergence from the posterior: the maximum is unique.
  RC_ASSERT(same(p.free_energy - objective(other), divergence(other, best) / p.beta));
}

RC_GTEST_PROP(FreeEnergy, BudgetOfDivergenceGrowsWithBetaAndGivesItBack, ()) {
  const OneQuery p = random_query_of_distinct_values();
  const auto budget = [&](const at::Tensor& beta) { return divergence(p.posterior_at(beta), p.prior); };
  const at::Tensor spent = budget(p.beta);
  RC_ASSERT(holds(budget(0.9 * p.beta) < spent) && holds(spent < budget(1.1 * p.beta)));
  const at::Tensor found = solve(budget, spent, at::full_like(p.beta, 1e-3), at::full_like(p.beta, 8.0));
  RC_ASSERT(holds((found - p.beta).abs() <= kSolved));
}

RC_GTEST_PROP(FreeEnergy, PosteriorIsTheBestWithinItsBudget, ()) {
  const OneQuery p = random_query_of_distinct_values();
  const at::Tensor best = p.posterior_at(p.beta), budget = divergence(best, p.prior);
  const auto value_of = [&](const at::Tensor& q) { return (q * p.value).sum(0); };
  // Another distribution, drawn back towards the prior until the budget allows it.
  const bool near = *rc::gen::arbitrary<bool>();
  const at::Tensor wish = near ? at::softmax(best.log() + 0.1 * at::randn_like(best), 0) : any_distribution(p.value);
  const auto towards = [&](const at::Tensor& step) { return (1 - step) * p.prior + step * wish; };
  const auto cost = [&](const at::Tensor& step) { return divergence(towards(step), p.prior); };
  const at::Tensor zero = at::zeros_like(p.beta), one = at::ones_like(p.beta);
  const at::Tensor step = at::where(cost(one) <= budget, one, solve(cost, budget, zero, one));
  const at::Tensor other = towards(step);
  RC_ASSERT(holds(divergence(other, p.prior) <= budget + kSlack));
  // The best is unique: another falls behind by at least its divergence over beta.
  RC_ASSERT(holds(value_of(best) - value_of(other) >= divergence(other, best) / p.beta - kSlack / p.beta));
}

// E.4: the Hessian is at most beta / 2, and exactly that where the posterior is (1/2, 1/2, 0, ..., 0).
RC_GTEST_PROP(FreeEnergy, CurvatureReachesItsBoundOnTwoEqualTokens, ()) {
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  const auto n = *rc::gen::inRange<int64_t>(2, 8);
  const double beta = *rc::gen::inRange(1, 100) / 10.0;
  at::Tensor scores = at::full({n}, -1e4, at::kDouble), value = at::randn({n}, at::kDouble);
  scores.slice(0, 0, 2).copy_(at::randn({2}, at::kDouble));
  value[1] = value[0] + (scores[0] - scores[1]) / beta;
  const auto read = [&](const at::Tensor& v) {
    return OneQuery::of(scores, v.unsqueeze(1), at::full({1}, beta, at::kDouble)).free_energy.sum();
  };
  const at::Tensor pair = at::eye(n, at::kDouble)[0] - at::eye(n, at::kDouble)[1];
  RC_ASSERT(same(hessian(read, value), beta / 4 * pair.outer(pair)));
  RC_ASSERT(same(at::linalg_matrix_norm(hessian(read, value), 2), at::full({}, beta / 2, at::kDouble)));
  // Any other posterior is flatter.
  const at::Tensor moved = value + 0.5 * pair;
  RC_ASSERT(at::linalg_matrix_norm(hessian(read, moved), 2).item<double>() < beta / 2 - kSlack);
}

}  // namespace
}  // namespace fem::testing
