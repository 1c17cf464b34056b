// What a convex read cannot do and the free energy can: the paper's Lemma 2.2, Corollary 2.3, Proposition C.1 and the
// rank of its section M.3.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "fem/ops/linear_read.h"
#include "support/monomials.h"
#include "support/one_query.h"

namespace fem::testing {
namespace {

// Scores from even to those of a single token.
at::Tensor any_scores(int64_t n) { return at::randn({n}, at::kDouble) * *rc::gen::element(0.0, 1.0, 8.0, 60.0); }

at::Tensor mean_of(const at::Tensor& scores, const at::Tensor& value) {
  return OneQuery::of(scores, value, at::ones({value.size(1)}, at::kDouble)).mean;
}

// Values in [0, 1), but 2 where a channel has its winner.
at::Tensor values_with_winners(int64_t n, const at::Tensor& winner) {
  return at::rand({n, winner.size(0)}, at::kDouble).scatter(0, winner.unsqueeze(0), 2.0);
}

RC_GTEST_PROP(ConvexRead, LiesInTheHullOfTheValues, ()) {
  const OneQuery p = random_query();
  const int64_t n = p.value.size(0), width = p.value.size(1);
  const at::Tensor one = at::ones({1, 1, 1, 1}, at::kDouble);
  const Read linear = linear_read(one.expand({1, n, 1, 1}), p.prior.view({1, n, 1, 1}), p.value.view({1, n, 1, width}),
                                  p.beta.view({1, width}));
  // A point is in the hull if and only if no direction tells it from all of them.
  const at::Tensor directions = at::randn({width, 50}, at::kDouble);
  const at::Tensor farthest = at::matmul(p.value, directions).amax(0);
  for (const at::Tensor& mean : {p.mean, linear.mean[0][-1][0]})
    RC_ASSERT(holds(at::matmul(mean, directions) <= farthest + kSlack));
}

RC_GTEST_PROP(ConvexRead, ReachesAllMaximaIfOneTokenHoldsThem, ()) {
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  const auto n = *rc::gen::inRange<int64_t>(2, 12), width = *rc::gen::inRange<int64_t>(2, 6);
  const auto holder = *rc::gen::inRange<int64_t>(0, n);
  const at::Tensor value = values_with_winners(n, at::full({width}, holder, at::kLong));
  at::Tensor scores = at::randn({n}, at::kDouble);
  scores[holder] = 60;
  RC_ASSERT(same(mean_of(scores, value), value.amax(0)));
}

// Lemma 2.2: all maxima at once are outside the hull if no token holds them all, by how much does not depend on p.
RC_GTEST_PROP(ConvexRead, MissesTheMaximaOfDifferentTokensThatTheFreeEnergyFinds, ()) {
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  const auto n = *rc::gen::inRange<int64_t>(2, 12), width = *rc::gen::inRange<int64_t>(2, 6);
  at::Tensor winner = at::randint(n, {width}, at::kLong);
  winner[1] = (winner[0] + 1) % n;
  const at::Tensor value = values_with_winners(n, winner), maxima = value.amax(0);
  const at::Tensor missing = maxima.sum() - value.sum(1).amax();
  RC_ASSERT(missing.item<double>() > 1);
  RC_ASSERT(holds(maxima.sum() - mean_of(any_scores(n), value).sum() >= missing - kSlack));
  // No smaller gap could be promised: the token with the largest sum, read alone, leaves this one.
  at::Tensor alone = at::zeros({n}, at::kDouble);
  alone[value.sum(1).argmax()] = 60;
  RC_ASSERT(same(maxima.sum() - mean_of(alone, value).sum(), missing));
  const at::Tensor found =
      OneQuery::of(at::zeros({n}, at::kDouble), value, at::full({width}, 30.0, at::kDouble)).free_energy;
  RC_ASSERT(holds(found.sum() > value.sum(1).amax() + 0.1));
}

// Corollary 2.3, with tokens no more than channels: see Errata.ASelectorInsideTheHullIsAConvexRead for more.
RC_GTEST_PROP(ConvexRead, MissesAnySelectorOfTwoTokensIfTokensAreNoMoreThanChannels, ()) {
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  const auto width = *rc::gen::inRange<int64_t>(2, 8), n = *rc::gen::inRange<int64_t>(2, width + 1);
  const at::Tensor value = at::randn({n, width}, at::kDouble);
  at::Tensor chosen = at::randint(n, {width}, at::kLong);
  chosen[1] = (chosen[0] + 1) % n;
  const at::Tensor selector = value.gather(0, chosen.unsqueeze(0)).squeeze(0);
  // The nearest point with weights that sum to one, of either sign.
  const at::Tensor edges = (value.slice(0, 1) - value[0]).t(), target = (selector - value[0]).unsqueeze(1);
  const at::Tensor distance = (target - at::matmul(edges, std::get<0>(at::linalg_lstsq(edges, target)))).norm();
  RC_ASSERT(distance.item<double>() > kSlack);
  RC_ASSERT(holds((mean_of(any_scores(n), value) - selector).norm() >= distance - kSlack));
}

// M.3: the weights of channels over tokens. A convex read has one row of them, the free energy as many as there can be.
RC_GTEST_PROP(ConvexRead, HasWeightsOfRankOneAndTheGatedReadOfFullRank, ()) {
  const OneQuery p = random_query_of_distinct_values();
  const int64_t n = p.value.size(0), width = p.value.size(1);
  const auto gated = [&](double logit) {
    return OneQuery::weights(p.value, [&](const at::Tensor& v) {
      return gate_one(OneQuery::of(p.scores, v, p.beta), at::full({width}, logit, at::kDouble));
    });
  };
  const double logit = *rc::gen::inRange(-20, 21) / 10.0, lambda = 1 / (1 + std::exp(-logit));
  const at::Tensor convex = gated(-1e4), weights = gated(logit);
  RC_ASSERT(same(convex, p.prior.expand_as(convex)));
  RC_ASSERT(same(weights, (1 - lambda) * p.prior + lambda * p.posterior));
  RC_ASSERT(at::linalg_matrix_rank(convex, kSlack).item<int64_t>() == 1);
  RC_ASSERT(at::linalg_matrix_rank(weights).item<int64_t>() == std::min(n, width));
}

// C.1: the scores of a head are those of a linear one with features of finite width M, so its past is M (V + 1) sums.
RC_GTEST_PROP(ConvexRead, OfASoftmaxHeadIsNearlyALinearOneOfMonomials, ()) {
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  const auto width = *rc::gen::inRange<int64_t>(1, 4), tokens = *rc::gen::inRange<int64_t>(1, 30);
  const double radius = *rc::gen::inRange(1, width == 1 ? 50 : 25) / 10.0;
  const double epsilon = std::pow(10.0, -*rc::gen::inRange(3, 9));
  const auto rows = [&](int64_t channels) { return at::randn({1, tokens, 1, channels}, at::kDouble); };
  at::Tensor query = rows(width), key = rows(width), value = rows(3);
  query = query * (radius / at::einsum("bthk,bihk->ti", {query, key}).abs().amax());
  value = value / value.norm(2, -1).amax();
  RC_ASSERT(epsilon * std::exp(radius) <= 0.5);  // what the proposition asks for

  const int64_t degree = smallest_degree(radius, epsilon);
  const at::Tensor q = monomials(query, degree), k = monomials(key, degree);
  const at::Tensor kernel_error = at::einsum("bthm,bihm->ti", {q, k}) - at::einsum("bthk,bihk->ti", {query, key}).exp();
  RC_ASSERT(holds(kernel_error.abs() <= epsilon));
  const at::Tensor exact = softmax_read(query, key, value, std::nullopt, {.scale = 1.0}).mean;
  const RecurrentRead linear = linear_read(q, k, value, std::nullopt);
  RC_ASSERT(holds((linear.mean - exact).norm(2, -1) <= 4 * std::exp(radius) * epsilon));
  RC_ASSERT(linear.state.sizes() == at::IntArrayRef({1, 1, choose(degree + width, width), 3 + 1}));
}

}  // namespace
}  // namespace fem::testing
