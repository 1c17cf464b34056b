// How the free energy answers to its prior (the paper's E.6, G.6): probabilities, weights, logits, masks.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "fem/ops/channel_read.h"
#include "fem/ops/linear_read.h"
#include "fem/ops/ssm_read.h"
#include "support/one_query.h"

namespace fem::testing {
namespace {

struct OneChannel {
  OneChannel() : p(one()), beta(p.beta.item<double>()), n(p.value.size(0)) {}
  static OneQuery one() {
    const OneQuery drawn = random_query_of_distinct_values();
    return OneQuery(drawn.scores.slice(0, 0, 8), drawn.value.slice(0, 0, 8).slice(1, 0, 1), drawn.beta.slice(0, 0, 1));
  }
  at::Tensor rows(const at::Tensor& x) const { return x.view({1, n, 1, 1}); }

  // 1/beta log sum_i w_i e^{beta v_i}, w not normalised: by linear_read's weights, and by channel_read's logits.
  at::Tensor of_weights(const at::Tensor& w) const {
    return unnormalised(linear_read(rows(at::ones_like(w)), rows(w), rows(p.value), p.beta.view({1, 1})));
  }
  at::Tensor of_logits(const at::Tensor& w) const {
    return unnormalised(aft_read(rows(w), rows(p.value), p.beta.view({1, 1})));
  }
  at::Tensor of_scores(const at::Tensor& b) const { return OneQuery::of(b, p.value, p.beta).free_energy.sum(); }

  OneQuery p;
  double beta;
  int64_t n;

 private:
  at::Tensor unnormalised(const RecurrentRead& read) const {
    return read.free_energy.flatten()[-1] + read.log_normalizer.flatten()[-1] / beta;
  }
};

at::Tensor gradient_of(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& at) {
  return OneQuery::weights(at, function);
}

// E.6 (iii)
RC_GTEST_PROP(FreeEnergyOfPrior, IsConcaveInTheProbabilities, ()) {
  const OneChannel c;
  const auto read = [&](const at::Tensor& w) { return c.of_weights(w); };
  const at::Tensor prior = c.p.prior.squeeze(1), energy = (c.p.beta * c.p.value).exp().squeeze(1);
  const at::Tensor z = (prior * energy).sum();
  RC_ASSERT(same(read(prior), c.p.free_energy.sum()));
  RC_ASSERT(same(gradient_of(read, prior), energy / (c.beta * z)));
  RC_ASSERT(same(hessian(read, prior), -energy.outer(energy) / (c.beta * z.square())));
  // On the simplex, by another operator.
  const at::Tensor other = at::softmax(at::randn({c.n}, at::kDouble), 0);
  const double share = *rc::gen::inRange(1, 10) / 10.0;
  RC_ASSERT(holds(c.of_scores((share * prior + (1 - share) * other).log()) >=
                  share * c.of_scores(prior.log()) + (1 - share) * c.of_scores(other.log()) - kSlack));
}

// E.6 (iv), first part
RC_GTEST_PROP(FreeEnergyOfPrior, IsConvexInTheLogarithmsOfUnnormalisedWeights, ()) {
  const OneChannel c;
  const auto read = [&](const at::Tensor& w) { return c.of_logits(w); };
  const at::Tensor logits = c.p.scores + *rc::gen::inRange(-30, 31) / 10.0, q = c.p.posterior.squeeze(1);
  RC_ASSERT(same(gradient_of(read, logits), q / c.beta));
  const at::Tensor curvature = hessian(read, logits);
  RC_ASSERT(same(curvature, covariance(q) / c.beta));
  RC_ASSERT(holds(at::linalg_eigvalsh(curvature) >= -kSlack));
}

// E.6 (iv), second part
RC_GTEST_PROP(FreeEnergyOfPrior, IsADifferenceOfConvexFunctionsOfTheScores, ()) {
  const OneChannel c;
  const auto read = [&](const at::Tensor& b) { return c.of_scores(b); };
  const at::Tensor q = c.p.posterior.squeeze(1), prior = c.p.prior.squeeze(1);
  RC_ASSERT(same(gradient_of(read, c.p.scores), (q - prior) / c.beta));
  RC_ASSERT(same(hessian(read, c.p.scores), (covariance(q) - covariance(prior)) / c.beta));
  // The difference: with the weights' own sum taken away again.
  RC_ASSERT(same(read(c.p.scores), c.of_logits(c.p.scores) - c.p.scores.logsumexp(0) / c.beta));
}

TEST(FreeEnergyOfPrior, BendsBothWaysInTheScores) {
  // p = (1/2, 1/2, 0) and q = (0, 1/2, 1/2), nearly.
  const at::Tensor scores = at::tensor({0.0, 0.0, -8.0}), value = at::tensor({-8.0, 0.0, 8.0}).unsqueeze(1);
  const at::Tensor one = at::ones({1}, at::kDouble);
  const at::Tensor bends = at::linalg_eigvalsh(
      hessian([&](const at::Tensor& b) { return OneQuery::of(b, value, one).free_energy.sum(); }, scores));
  EXPECT_LT(bends[0].item<double>(), -0.1);
  EXPECT_GT(bends[2].item<double>(), 0.1);
}

// G.6: only the ratios of a prior's weights count, whoever makes them.
RC_GTEST_PROP(FreeEnergyOfPrior, DoesNotChangeWhenAllWeightsAreScaled, ()) {
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  const auto n = *rc::gen::inRange<int64_t>(1, 12);
  const double factor = std::exp(*rc::gen::inRange(-60, 61) / 10.0);
  const auto rows = [&](int64_t width) { return at::rand({1, n, 1, width}, at::kDouble) + 0.1; };
  const at::Tensor value = at::randn({1, n, 1, 3}, at::kDouble), beta = at::rand({1, 3}, at::kDouble) + 0.2;
  const auto unchanged = [&](const Read& before, const Read& after) {
    RC_ASSERT(same(after.mean, before.mean) && same(after.free_energy, before.free_energy));
  };
  const at::Tensor query = at::ones({1, n, 1, 1}, at::kDouble), score = rows(1);
  const SoftmaxReadOptions plain{.scale = 1.0};
  unchanged(softmax_read(query, score, value, beta, plain),
            softmax_read(query, score + std::log(factor), value, beta, plain));
  const at::Tensor q = rows(2), k = rows(2), decay = -rows(1).squeeze(-1), logit = rows(3);
  unchanged(linear_read(q, k, value, beta, decay), linear_read(q, factor * k, value, beta, decay));
  unchanged(linear_read(q, k, value, beta, decay), linear_read(factor * q, k, value, beta, decay));
  unchanged(aft_read(logit, value, beta), aft_read(logit + std::log(factor), value, beta));
  const at::Tensor A = -(at::rand({1, 3, 2}, at::kDouble) + 0.1), D = at::rand({1, 3}, at::kDouble) + 0.1;
  Ssm ssm{rows(3), A, rows(2).squeeze(2), rows(2).squeeze(2), D}, scaled = ssm;
  scaled.C = factor * ssm.C, scaled.D = factor * ssm.D;
  unchanged(ssm_read(value, beta, ssm), ssm_read(value, beta, scaled));
}

RC_GTEST_PROP(FreeEnergyOfPrior, MovesThePosteriorByTheRatioOfTheWeights, ()) {
  const OneQuery p = random_query();
  const at::Tensor change = at::randn_like(p.scores);
  const at::Tensor moved = OneQuery(p.scores + change, p.value, p.beta).posterior_at(p.beta);
  const at::Tensor expected = p.posterior_at(p.beta) * change.exp().unsqueeze(1);
  RC_ASSERT(same(moved, expected / expected.sum(0)));
}

// G.6, a stretch and a shift of its own for every channel.
RC_GTEST_PROP(FreeEnergyOfPrior, FollowsAffineChangesOfEachChannel, ()) {
  const OneQuery p = random_query();
  const at::Tensor a = at::rand_like(p.beta) * 3 + 0.1, b = at::randn_like(p.beta) * 3;
  RC_ASSERT(same(OneQuery::of(p.scores, a * p.value + b, p.beta).free_energy, a * p.at_temperature(a * p.beta) + b));
}

// E.6 (i), the part that holds: a hidden token has no weight, and without renormalisation less is less.
RC_GTEST_PROP(FreeEnergyOfPrior, GivesHiddenTokensNothingAndShrinksWithThem, ()) {
  const OneQuery p = random_query();
  const int64_t n = p.value.size(0), width = p.value.size(1);
  at::Tensor visible = at::rand({n}) < 0.6;
  visible[0] = true;
  const at::Tensor query = at::ones({1, 1, 1, 1}, at::kDouble), key = p.scores.view({1, n, 1, 1});
  const at::Tensor value = p.value.view({1, n, 1, width}), beta = p.beta.view({1, width});
  const auto read = [&](const at::Tensor& v, const std::optional<at::Tensor>& mask) {
    return softmax_read(query, key, v, beta, {.scale = 1.0, .causal = false, .key_mask = mask});
  };
  const SoftmaxRead all = read(value, std::nullopt), some = read(value, visible.unsqueeze(0));
  const at::Tensor posterior =
      OneQuery::weights(value, [&](const at::Tensor& v) { return read(v, visible.unsqueeze(0)).free_energy; });
  RC_ASSERT(holds((posterior.view({n, width}) == 0) == visible.logical_not().unsqueeze(1)));
  const at::Tensor share = some.log_normalizer - all.log_normalizer;  // log p(M'), at most 0
  RC_ASSERT(holds(some.free_energy + share.unsqueeze(-1) / beta <= all.free_energy + kSlack));
}

}  // namespace
}  // namespace fem::testing
