#include "evaluate/forecasts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

const at::Tensor kBoth = at::tensor({0, 1}, at::kLong), kSecond = at::tensor({1}, at::kLong);

// Two columns: a season of six rows, and a random walk.
Windows some_windows(int64_t input = 24, int64_t horizon = 8) {
  at::manual_seed(2);
  const at::Tensor place = at::arange(300).to(at::kDouble);
  const at::Tensor season = (place * (2 * M_PI / 6)).sin() + 3;
  const at::Tensor rows = at::stack({season, at::randn({300}, at::kDouble).cumsum(0)}, 1).to(at::kFloat);
  return {rows, {180, 50, 70}, input, horizon};
}

TEST(ForecastScores, AreMeansOverWindowsRowsAndTargets) {
  const Windows windows = some_windows();
  const Forecasting half = [](const at::Tensor& past) { return 0.5 * past.slice(1, -8).slice(2, 1); };
  const ForecastScore score = score_forecasts(windows, kSecond, half, {.batch = 7});
  const Windows::Rows all = windows.range(SeriesPart::kTest, 0, windows.count(SeriesPart::kTest));
  const at::Tensor error = (half(all.past) - all.future.slice(2, 1)).to(at::kDouble);
  EXPECT_EQ(score.windows, 63);
  EXPECT_NEAR(score.mse(), error.square().mean().item<double>(), 1e-9);
  EXPECT_NEAR(score.mae(), error.abs().mean().item<double>(), 1e-9);
  EXPECT_TRUE(at::allclose(score.by_lead(score.squared), error.square().mean({0, 2})));
  EXPECT_TRUE(at::allclose(score.by_target(score.absolute), error.abs().mean({0, 1})));
  double shared = 0;
  int64_t counted = 0;
  for (const int64_t share : {0, 1, 2}) {
    const ForecastScore part = score_forecasts(windows, kSecond, half, {.batch = 7, .share = share, .shares = 3});
    shared += part.squared.sum().item<double>();
    counted += part.windows;
  }
  EXPECT_EQ(counted, 63);
  EXPECT_NEAR(shared, score.squared.sum().item<double>(), 1e-6);
  EXPECT_EQ(score_forecasts(windows, kSecond, half, {.windows = 20}).windows, 21);
}

TEST(ForecastBaselines, AreExactWhereTheyCanBe) {
  const Windows windows = some_windows();
  const at::Tensor first = at::tensor({0}, at::kLong);
  EXPECT_LT(score_forecasts(windows, first, seasonal(8, 6, first), {}).mse(), 1e-9);
  EXPECT_GT(score_forecasts(windows, first, seasonal(8, 5, first), {}).mse(), 0.1);
  EXPECT_LT(score_forecasts(windows, first, fit_ridge(windows, first), {}).mse(), 1e-4);
  const at::Tensor past = windows.range(SeriesPart::kTest, 0, 2).past;
  EXPECT_TRUE(last_value(8, kBoth)(past).equal(past.slice(1, 23).expand({2, 8, 2})));
  EXPECT_TRUE(
      fails_with("expected windows of at least a season, 25 rows, got 24", [&] { seasonal(8, 25, kBoth)(past); }));
}

// The closed form against the gradient of what it minimises.
TEST(ForecastBaselines, RidgeIsAMinimum) {
  const Windows windows = some_windows(6, 3);
  const Forecasting ridge = fit_ridge(windows, kBoth);
  // Its map, read off by a unit at each place: forecasts are level + (past - level) map.
  const at::Tensor eye = at::eye(6).unsqueeze(2).expand({6, 6, 2}).contiguous();
  const at::Tensor said = ridge(eye).select(2, 0).to(at::kDouble);  // [6, 3]: map of (unit - 1/6) + 1/6
  const Windows::Rows all = windows.range(SeriesPart::kTrain, 0, windows.count(SeriesPart::kTrain));
  const auto flat = [](const at::Tensor& rows) { return rows.transpose(1, 2).flatten(0, 1).to(at::kDouble); };
  const at::Tensor level = flat(all.past).mean(1, true), x = flat(all.past) - level, y = flat(all.future) - level;
  // Centred windows see a map only without its mean over the places, which the penalty leaves at 0.
  const at::Tensor map = said - 1.0 / 6;
  const at::Tensor gradient = x.t().matmul(x.matmul(map) - y) + map;
  EXPECT_LT(gradient.abs().max().item<double>(), 1e-3 * x.t().matmul(y).abs().max().item<double>());
}

}  // namespace
}  // namespace fem
