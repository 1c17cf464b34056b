#include "data/windows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

TEST(Windows, AreAsManyAsPublished) {
  const at::Tensor hourly = at::zeros({17420, 1}), quarters = at::zeros({69680, 1}), weather = at::zeros({52696, 1});
  const SeriesSplit of_weather = split_of(52696, {});
  EXPECT_EQ(of_weather.train, 36887);
  EXPECT_EQ(of_weather.validation, 5270);
  EXPECT_EQ(of_weather.test, 10539);
  for (const auto& [horizon, input, test] :
       {std::tuple{96, 1024, 2785}, {192, 2048, 2689}, {336, 2048, 2545}, {720, 4096, 2161}}) {
    const Windows of_hours(hourly, {8640, 2880, 2880}, input, horizon);
    EXPECT_EQ(of_hours.count(SeriesPart::kTest), test);
    EXPECT_EQ(of_hours.count(SeriesPart::kValidation), test);
    EXPECT_EQ(of_hours.count(SeriesPart::kTrain), 8640 - input - horizon + 1);
    const Windows of_quarters(quarters, {34560, 11520, 11520}, input, horizon);
    EXPECT_EQ(of_quarters.count(SeriesPart::kTest), 11520 - horizon + 1);
    EXPECT_EQ(Windows(weather, of_weather, input, horizon).count(SeriesPart::kTest), 10539 - horizon + 1);
  }
}

TEST(Windows, LookBackIntoTheRowsBefore) {
  const at::Tensor rows = at::stack({at::arange(40), -at::arange(40)}, 1).to(at::kFloat);
  const Windows windows(rows, {20, 8, 10}, 5, 3);
  const auto numbers = [](const at::Tensor& window) { return window.select(1, 0); };
  const auto expected = [](int64_t first, int64_t last) { return at::arange(first, last).to(at::kFloat); };
  EXPECT_EQ(windows.count(SeriesPart::kTrain), 13);
  const Windows::Rows last = windows.range(SeriesPart::kTrain, 12, 13);
  EXPECT_TRUE(numbers(last.past[0]).equal(expected(12, 17)));
  EXPECT_TRUE(numbers(last.future[0]).equal(expected(17, 20)));
  const Windows::Rows choosing = windows.range(SeriesPart::kValidation, 0, windows.count(SeriesPart::kValidation));
  EXPECT_TRUE(numbers(choosing.past[0]).equal(expected(15, 20)));
  EXPECT_TRUE(numbers(choosing.future[0]).equal(expected(20, 23)));
  EXPECT_TRUE(numbers(choosing.future[5]).equal(expected(25, 28)));
  const Windows::Rows test = windows.at(SeriesPart::kTest, at::tensor({7, 0}, at::kLong));
  EXPECT_TRUE(numbers(test.future[0]).equal(expected(35, 38)));
  EXPECT_TRUE(numbers(test.past[1]).equal(expected(23, 28)));
  EXPECT_TRUE(test.past[1].select(1, 1).equal(-expected(23, 28)));
}

TEST(Windows, ThatAreNotThereAreRefused) {
  const at::Tensor rows = at::zeros({40, 1});
  EXPECT_TRUE(fails_with("expected at least input + horizon = 24 rows to train on, got 20; shorten --input",
                         [&] { Windows(rows, {20, 8, 10}, 21, 3); }));
  EXPECT_TRUE(fails_with("expected at least horizon = 9 rows for validation, got 8",
                         [&] { Windows(rows, {20, 8, 10}, 5, 9); }));
  EXPECT_TRUE(fails_with("of together at most 40 rows, got 41", [] { split_of(40, {20, 11, 10}); }));
  EXPECT_TRUE(fails_with("expected test_rows from 1 to the 40 rows of the table, got 0; give all three",
                         [] { split_of(40, {20, 11, 0}); }));
}

}  // namespace
}  // namespace fem
