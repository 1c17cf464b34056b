#include "train/best.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

TEST(BestSoFar, CountsValidationsSinceTheBest) {
  Best best;
  const Goal loss{"loss"};
  EXPECT_TRUE(best.observe(loss, {{"loss", 3.0}}, 10));
  EXPECT_FALSE(best.observe(loss, {{"loss", 3.0}}, 20));  // no better than before
  EXPECT_FALSE(best.observe(loss, {{"loss", 4.0}}, 30));
  EXPECT_EQ(best.since, 2);
  EXPECT_TRUE(best.observe(loss, {{"loss", 2.5}}, 40));
  EXPECT_EQ(std::tie(best.step, best.since, best.validated), std::make_tuple(40, 0, 40));
  EXPECT_EQ(best.value, 2.5);
}

TEST(BestSoFar, MayBeTheLargest) {
  Best best;
  const Goal accuracy{"accuracy", /*larger_is_better=*/true};
  for (const double value : {0.1, 0.5, 0.4})
    best.observe(accuracy, {{"loss", 1.0}, {"accuracy", value}}, best.validated + 1);
  EXPECT_EQ(best.value, 0.5);
  EXPECT_EQ(best.step, 1);
  EXPECT_EQ(best.since, 1);
}

TEST(BestSoFar, IsEnoughInTheGoalsDirection) {
  Best best;
  const Goal loss{"loss"}, accuracy{"accuracy", /*larger_is_better=*/true};
  EXPECT_FALSE(best.reaches(accuracy, 0.0));  // nothing was validated
  best.observe(accuracy, {{"accuracy", 0.5}}, 1);
  EXPECT_TRUE(best.reaches(accuracy, 0.5));
  EXPECT_FALSE(best.reaches(accuracy, 0.6));
  EXPECT_TRUE(best.reaches(loss, 0.6));
  EXPECT_FALSE(best.reaches(loss, 0.4));
}

TEST(BestSoFar, IsNeverWhatIsNotFinite) {
  Best best;
  const Goal loss{"loss"};
  EXPECT_FALSE(best.observe(loss, {{"loss", std::nan("")}}, 1));
  EXPECT_FALSE(best.observe(loss, {{"loss", -std::numeric_limits<double>::infinity()}}, 2));
  EXPECT_EQ(best.step, -1);
  EXPECT_EQ(best.since, 2);
  EXPECT_TRUE(best.observe(loss, {{"loss", 9.0}}, 3));
}

TEST(BestSoFar, SurvivesAFile) {
  Best best;
  best.observe({"loss"}, {{"loss", 0.1}}, 7);
  best.observe({"loss"}, {{"loss", 0.2}}, 9);
  const Best again = best_from_json(nlohmann::json::parse(to_json(best).dump()));
  EXPECT_EQ(std::tie(again.validated, again.step, again.value, again.since),
            std::tie(best.validated, best.step, best.value, best.since));
}

TEST(BestSoFar, AFileOfOtherTypesIsRefused) {
  for (const nlohmann::json& in : {nlohmann::json(5), nlohmann::json{{"validated", "x"}}, nlohmann::json::object()})
    EXPECT_TRUE(fails_with("train: the best validation: expected", [&] { best_from_json(in); }));
}

TEST(BestSoFar, AMeasureThatIsNotThereIsNamed) {
  Best best;
  EXPECT_TRUE(fails_with("expected a figure 'accuracy' among loss, perplexity",
                         [&] { best.observe({"accuracy"}, {{"loss", 1.0}, {"perplexity", 2.7}}, 1); }));
}

}  // namespace
}  // namespace fem
