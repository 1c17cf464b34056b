// Rank correlations and intervals against examples worked by hand.
#include "report/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

TEST(Ranks, EqualValuesShareTheMeanOfTheirRanks) {
  EXPECT_EQ(ranks({30, 10, 20, 20}), (std::vector<double>{4, 1, 2.5, 2.5}));
  EXPECT_EQ(ranks({7, 7, 7}), (std::vector<double>{2, 2, 2}));
  EXPECT_TRUE(ranks({}).empty());
}

TEST(RankCorrelation, WithoutTiesIsTheTextbookFormula) {
  // Ranks 1 2 3 4 5 and 2 1 4 3 5: squared differences 1 1 1 1 0, so 1 - 6 * 4 / (5 * 24) = 0.8; of the ten pairs the
  // first two and the two after them are turned round: (8 - 2) / 10.
  const std::vector<double> a{10, 20, 30, 40, 50}, b{2, 1, 4, 3, 5};
  EXPECT_NEAR(*spearman(a, b), 0.8, 1e-15);
  EXPECT_NEAR(*kendall(a, b), 0.6, 1e-15);
  EXPECT_NEAR(*spearman(a, {5, 4, 3, 2, 1}), -1, 1e-15);
  EXPECT_NEAR(*kendall(a, {5, 4, 3, 2, 1}), -1, 1e-15);
}

TEST(RankCorrelation, TiesAreThoseOfAWorkedExample) {
  // Ranks 1 2.5 2.5 4 and 1 3 2 4. About 2.5: products 2.25 + 0 + 0 + 2.25 = 4.5; squares 4.5 and 5.
  const std::vector<double> a{1, 2, 2, 3}, b{1, 3, 2, 4};
  EXPECT_NEAR(*spearman(a, b), 4.5 / std::sqrt(4.5 * 5), 1e-15);
  // Six pairs, one of them tied in a; the other five agree: 5 / sqrt(5 * 6).
  EXPECT_NEAR(*kendall(a, b), 5 / std::sqrt(30.0), 1e-15);
}

TEST(RankCorrelation, WhatHasNoOrderHasNone) {
  EXPECT_EQ(spearman({1, 1}, {1, 2}), std::nullopt);
  EXPECT_EQ(kendall({1, 1}, {1, 2}), std::nullopt);
  EXPECT_EQ(spearman({}, {}), std::nullopt);
  EXPECT_TRUE(fails_with("expected lists of one length, got 1 and 2", [] { spearman({1}, {1, 2}); }));
}

TEST(Student, QuantilesAreThoseOfTheTables) {
  // Two-sided 95 %, odd and even degrees of freedom.
  EXPECT_NEAR(student_quantile(1, 0.95), 12.7062047, 1e-7);
  EXPECT_NEAR(student_quantile(2, 0.95), 4.3026527, 1e-7);
  EXPECT_NEAR(student_quantile(3, 0.95), 3.1824463, 1e-7);
  EXPECT_NEAR(student_quantile(4, 0.95), 2.7764451, 1e-7);
  EXPECT_NEAR(student_quantile(9, 0.95), 2.2621572, 1e-7);
  EXPECT_NEAR(student_quantile(30, 0.95), 2.0422725, 1e-7);
  EXPECT_NEAR(student_quantile(2, 0.99), 9.9248432, 1e-7);
}

TEST(Intervals, AreStudentsAroundTheMean) {
  // Mean 2, deviations -1 0 1: standard error sqrt(2 / 2 / 3) = 1 / sqrt 3.
  const Interval interval = interval_of({1, 2, 3});
  EXPECT_DOUBLE_EQ(interval.mean, 2);
  EXPECT_EQ(interval.count, 3U);
  EXPECT_NEAR(*interval.half_width, 4.3026527 / std::sqrt(3.0), 1e-7);
  EXPECT_FALSE(interval.is_apart_from_zero());  // 2.48 reaches below 0
  EXPECT_TRUE(interval_of({1.9, 2, 2.1}).is_apart_from_zero());
  EXPECT_TRUE(interval_of({-1.9, -2, -2.1}).is_apart_from_zero());
  EXPECT_FALSE(interval_of({5}).half_width);
  EXPECT_FALSE(interval_of({5}).is_apart_from_zero());  // one value says nothing
}

}  // namespace
}  // namespace fem
