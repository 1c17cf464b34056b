// What the cap |beta v| <= 40 leaves of the paper's E.3 and E.5. Values within +-3 meet it from beta = 13.3 on.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "support/one_query.h"

namespace fem::testing {
namespace {

constexpr double kCap = 40, kHighest = 3;

// One channel whose highest value is 3, at token 0, which no other has more weight than; all others lie in [-3, 1].
struct Capped {
  Capped() {
    at::manual_seed(*rc::gen::arbitrary<uint32_t>());
    const auto n = *rc::gen::inRange<int64_t>(2, 12);
    scores = at::randn({n}, at::kDouble);
    scores[0] = scores.max();
    value = at::rand({n, 1}, at::kDouble) * 4 - 3;
    value[0] = kHighest;
    winner = at::softmax(scores, 0)[0].item<double>();
    margin = kHighest - value.slice(0, 1).max().item<double>();
  }
  static at::Tensor temperature(double beta) { return at::full({1}, beta, at::kDouble); }
  at::Tensor clipped(const at::Tensor& v, double beta) const {
    return clip_value(v.view({1, -1, 1, 1}), temperature(beta).view({1, 1}), kCap).view({-1, 1});
  }
  // As the layer reads: the clipped values at this temperature.
  double free_energy(double beta) const {
    return OneQuery::of(scores, clipped(value, beta), temperature(beta)).free_energy.item<double>();
  }
  at::Tensor gradient(double beta) const {
    return OneQuery::weights(value,
                             [&](const at::Tensor& v) {
                               return OneQuery::of(scores, clipped(v, beta), temperature(beta)).free_energy;
                             })
        .squeeze(1);
  }
  // Of the clipped values: what chooses, even where no gradient flows.
  double posterior_of_winner(double beta) const {
    return OneQuery(scores, clipped(value, beta), temperature(beta)).posterior_at(temperature(beta))[0].item<double>();
  }
  double bound_on_the_rest(double beta) const { return (1 - winner) / winner * std::exp(-beta * margin); }

  at::Tensor scores, value;
  double winner, margin;  // p of token 0, and by how much it is highest
};

RC_GTEST_PROP(ValueCap, KeepsTheTheoremsBelowIt, ()) {
  const Capped c;
  double before = -kHighest;
  for (double beta = 1; beta <= 13; ++beta) {
    const double free_energy = c.free_energy(beta);
    RC_ASSERT(free_energy >= before - kSlack);                                         // E.3
    RC_ASSERT(free_energy >= kHighest + std::log(c.winner) / beta - kSlack);           // E.5
    RC_ASSERT(1 - c.posterior_of_winner(beta) <= c.bound_on_the_rest(beta) + kSlack);  // E.5
    before = free_energy;
  }
}

// A winner of little weight would be found later, and F would fall from there on only; it is never above 40/beta.
RC_GTEST_PROP(ValueCap, MakesTheFreeEnergyFallBeyondIt, ()) {
  const Capped c;
  double before = c.free_energy(13.5);
  for (double beta = 14; beta <= 100; beta += 0.5) {
    const double free_energy = c.free_energy(beta);
    RC_ASSERT(free_energy < before);  // E.3 says it grows
    RC_ASSERT(free_energy <= kCap / beta + kSlack);
    before = free_energy;
  }
  RC_ASSERT(before <= 0.4 + kSlack);  // and E.5 that it comes near 3
  RC_ASSERT(before < kHighest + std::log(c.winner) / 100);
}

RC_GTEST_PROP(ValueCap, SilencesTheGradientOfClippedValues, ()) {
  const Capped c;
  for (const double beta : {13.0, 20.0, 50.0, 100.0}) {
    const at::Tensor clipped = (c.value.squeeze(1) * beta).abs() > kCap;
    RC_ASSERT(holds((c.gradient(beta) == 0) == clipped));
  }
}

// Two values beyond the cap are one value: whoever is higher no longer shows.
RC_GTEST_PROP(ValueCap, LeavesClippedTokensToThePrior, ()) {
  Capped c;
  c.value.slice(0, 1).copy_(c.value.slice(0, 1).abs() / 3 * 2 + 0.5);  // all within [0.5, 2.5]
  c.margin = kHighest - c.value.slice(0, 1).max().item<double>();
  const double beta = 100;
  RC_ASSERT(std::abs(c.posterior_of_winner(beta) - c.winner) <= kSlack);
  RC_ASSERT(std::abs(c.free_energy(beta) - kCap / beta) <= kSlack);
  RC_ASSERT(1 - c.posterior_of_winner(beta) > c.bound_on_the_rest(beta));  // E.5
}

// Whatever beta is: of the clipped values every statement holds.
RC_GTEST_PROP(ValueCap, KeepsTheOrderOfClippedMeanFreeEnergyAndMaximum, ()) {
  const Capped c;
  const double beta = *rc::gen::inRange(1, 1000) / 10.0;
  const at::Tensor values = c.clipped(c.value, beta);
  const OneQuery p(c.scores, values, Capped::temperature(beta));
  RC_ASSERT(holds(values.abs() * beta <= kCap + kSlack));
  RC_ASSERT(holds(p.mean <= p.free_energy + kSlack) && holds(p.free_energy <= values.amax(0) + kSlack));
  RC_ASSERT(same((p.prior * values).sum(0) + divergence(p.prior, p.posterior) / beta, p.free_energy));
}

}  // namespace
}  // namespace fem::testing
