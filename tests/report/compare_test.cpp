// What is said of single letters and of the paper's order.
#include <nlohmann/json.hpp>

#include "report/document.h"
#include "report/reports.h"

namespace fem {
namespace {

using testing::Reports;

TEST_F(Reports, EffectsArePairedBySeedWithTheirIntervals) {
  // b - a by seed: 10, 12, 14 points. Mean 12, standard error 2 / sqrt 3, t of two degrees of freedom 4.3027: 4.97.
  const double a[]{0.10, 0.20, 0.30}, b[]{0.20, 0.32, 0.44};
  for (const int64_t seed : {1, 2, 3}) {
    finish("a", "recall", "", seed, a[seed - 1]);
    finish("b", "recall", "", seed, b[seed - 1]);
  }
  finish("b", "recall", "", 4, 0.99);  // without a partner
  finish("c", "recall", "", 1, 0.25);
  const Claim about = claim();
  const Study found = study();
  const Board board = board_of(found, &about);
  const std::vector<Effect> effects = effects_of(board);
  ASSERT_EQ(effects.size(), 2U);
  EXPECT_EQ(effects[0].step, "X");
  EXPECT_NEAR(effects[0].interval.mean, 12, 1e-12);
  EXPECT_EQ(effects[0].interval.count, 3U);
  EXPECT_NEAR(*effects[0].interval.half_width, 4.3026527 * 2 / std::sqrt(3.0), 1e-6);
  EXPECT_TRUE(effects[0].interval.is_apart_from_zero());
  EXPECT_EQ(effects[0].published, 20);
  EXPECT_EQ(effects[1].step, "Y");
  EXPECT_NEAR(effects[1].interval.mean, 5, 1e-12);
  EXPECT_FALSE(effects[1].interval.half_width);  // a single common seed

  const std::vector<Claim> claims{about};
  const Json written = report_document(gather({folder}), claims, "fem report x").at("studies").at(0);
  EXPECT_EQ(written.at("effects").at(0).at("verdict"), "better");
  EXPECT_EQ(written.at("effects").at(0).at("text"), "12.0 ± 5.0");
  EXPECT_EQ(written.at("effects").at(1).at("verdict"), "open");
  EXPECT_EQ(written.at("board").at("rows").at(0).at("cells").at(0).at("text"), "20.0 ± 5.8");
}

// A caption tells an order and no figures: places, the first being the best, are compared and never measured.
TEST_F(Reports, PlacesAreAnOrderAndNoFigures) {
  for (const int64_t seed : {1, 2, 3}) {
    finish("a", "recall", "", seed, 0.10);
    finish("b", "recall", "", seed, 0.30 + 0.001 * static_cast<double>(seed));
    finish("c", "recall", "", seed, 0.20);
  }
  write(folder / "places.toml", R"(
title = "An order"
row_axis = "mixer"
column_axis = "task"
measure = "accuracy"
places = true
along = "layer"
column = [{ label = "recall", title = "Recall" }]
row = [
  { label = "a", published = [{ text = "worst", value = 3 }] },
  { label = "b", published = [{ text = "second", value = 2 }] },
  { label = "c", published = [{ text = "best", value = 1 }] },
]
ladder = [{ title = "steps", rungs = ["a", "b"], steps = ["X"] }]
)");
  const std::vector<Claim> claims{load_claim(folder / "places.toml")};
  const Study found = study();
  const Board board = board_of(found, &claims[0]);
  const std::vector<Agreement> agreements = agreements_of(board);
  ASSERT_EQ(agreements.size(), 1U);
  EXPECT_NEAR(*agreements[0].spearman, 0.5, 1e-15);
  EXPECT_EQ(sentence_of(board, agreements[0]),
            "Of 3 pairs that the paper orders, 2 stand in the same order here and 1 the other way round; in 1 of these "
            "the 95 % interval leaves out 0: c over b (here −0.1020 ± 0.0025, 3 seeds).");
  EXPECT_FALSE(effects_of(board).at(0).published);
  const Json written = report_document(gather({folder}), claims, "fem report x").at("studies").at(0);
  EXPECT_EQ(written.at("along"), "layer");
  const Json& cell = written.at("board").at("rows").at(2).at("cells").at(0);
  EXPECT_EQ(cell.at("published"), "best");
  EXPECT_TRUE(cell.at("published_value").is_null());
  EXPECT_TRUE(written.at("agreements").at(0).at("reversed").at(0).at("published").is_null());
}

TEST_F(Reports, WhereThePaperIsReversedIsSaidPlainly) {
  // The paper: c > b > a. Here b > c > a in recall: b over c by 1, 2, 3 points (its interval reaches 0), c over a and b
  // over a clearly; in copy a over b by 10 points in every seed but for a little.
  const double b[]{0.31, 0.32, 0.33}, copy_a[]{0.50, 0.51, 0.52}, copy_b[]{0.40, 0.41, 0.4199};
  for (const int64_t seed : {1, 2, 3}) {
    finish("a", "recall", "", seed, 0.10);
    finish("b", "recall", "", seed, b[seed - 1]);
    finish("c", "recall", "", seed, 0.30);
    finish("a", "copy", "", seed, copy_a[seed - 1]);
    finish("b", "copy", "", seed, copy_b[seed - 1]);
  }
  const Claim about = claim();
  const Study found = study();
  const Board board = board_of(found, &about);
  const std::vector<Agreement> agreements = agreements_of(board);
  ASSERT_EQ(agreements.size(), 3U);  // recall, copy, and the average of a and b
  EXPECT_EQ(agreements[0].rows, 3U);
  EXPECT_NEAR(*agreements[0].spearman, 0.5, 1e-15);  // ranks 1 3 2 against 1 2 3
  EXPECT_NEAR(*agreements[0].kendall, 1.0 / 3, 1e-15);
  EXPECT_EQ(
      sentence_of(board, agreements[0]),
      "Of 3 pairs that the paper orders, 2 stand in the same order here and 1 the other way round; no 95 % interval "
      "of a reversed difference leaves out 0.");
  EXPECT_EQ(
      sentence_of(board, agreements[1]),
      "Of 1 pair that the paper orders, 0 stand in the same order here and 1 the other way round; in 1 of these the "
      "95 % interval leaves out 0: b over a (paper +20.0, here −10.0 ± 0.0, 3 seeds).");
  EXPECT_EQ(agreements[2].same, 1U);
  EXPECT_EQ(sentence_of(board, agreements[2]), "The one pair that the paper orders stands in the same order here.");
}

TEST_F(Reports, SeedsThatOnlyOneOfTwoRowsHasDoNotReverseThem) {
  // b over a by 2 points in every seed of both; two more seeds of a alone lift its mean above that of b.
  for (const int64_t seed : {1, 2, 3}) {
    finish("a", "recall", "", seed, 0.30 + 0.01 * static_cast<double>(seed));
    finish("b", "recall", "", seed, 0.32 + 0.01 * static_cast<double>(seed));
  }
  for (const int64_t seed : {4, 5}) finish("a", "recall", "", seed, 0.9);
  const Claim about = claim();
  const Study found = study();
  const Agreement agreement = agreements_of(board_of(found, &about)).at(0);
  EXPECT_EQ(agreement.same, 1U);
  EXPECT_TRUE(agreement.reversed.empty());
}

TEST_F(Reports, AllReversalsAreWrittenTheCertainOnesFirst) {
  const double a[]{0.5, 0.1, 0.6};  // above b by 40, -1 and 49 points: by chance perhaps
  for (const int64_t seed : {1, 2, 3}) {
    finish("a", "recall", "", seed, a[seed - 1]);
    finish("b", "recall", "", seed, 0.11);
    finish("c", "recall", "", seed, 0.10);
  }
  const Json written = report_document(gather({folder}), {claim()}, "").at("studies").at(0).at("agreements").at(0);
  EXPECT_EQ(written.at("certain"), 1);
  std::vector<std::string> pairs;
  for (const Json& one : written.at("reversed"))
    pairs.push_back(one.at("better").get<std::string>() + one.at("worse").get<std::string>());
  EXPECT_EQ(pairs, (std::vector<std::string>{"cb", "ca", "ba"}));
  EXPECT_EQ(written.at("reversed").at(0).at("certain"), true);
  EXPECT_EQ(written.at("reversed").at(1).at("certain"), false);
}

TEST_F(Reports, WhatThePaperHasEqualIsNotSaidToAgree) {
  finish("a", "recall", "", 1, 0.35);
  finish("b", "recall", "", 1, 1.00);
  Claim about = claim();
  for (ClaimRow& row : about.rows) row.published[0] = {"99.9", 99.9};
  const Study found = study();
  const Board board = board_of(found, &about);
  EXPECT_EQ(sentence_of(board, agreements_of(board).at(0)),
            "The paper has these 2 rows equal; here they are from 35.0 to 100.0.");
}

}  // namespace
}  // namespace fem
