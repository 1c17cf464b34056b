#include "util/progress.h"

#include <gtest/gtest.h>

namespace fem {
namespace {

ProgressState half_way() {
  return {.label = "fem seed 0", .done = 1000, .total = 2000, .seconds = 10, .unit = "step", .note = "loss 0.03"};
}

TEST(Progress, ClockTextGrowsWithTheTime) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(59.6), "1:00");
  EXPECT_EQ(clock_text(754), "12:34");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(-5), "0:00");
}

TEST(Progress, LineHasShareRateAndTimeLeft) {
  EXPECT_EQ(progress_line(half_way()), "fem seed 0  50 %  1,000/2,000  100 step/s  ETA 0:10  loss 0.03");
}

TEST(Progress, RateOfAResumedRunCountsOnlyWhatWasDoneNow) {
  ProgressState state = half_way();
  state.first = 900;
  EXPECT_EQ(progress_line(state), "fem seed 0  50 %  1,000/2,000  10 step/s  ETA 1:40  loss 0.03");
}

TEST(Progress, FinishedLineSaysHowLongItTook) {
  ProgressState state = half_way();
  state.done = 2000;
  state.note = "";
  EXPECT_EQ(progress_line(state), "fem seed 0 100 %  2,000/2,000  200 step/s  in 0:10");
}

TEST(Progress, NothingDoneYetHasNoRate) {
  ProgressState state = half_way();
  state.done = 0;
  state.note = "";
  EXPECT_EQ(progress_line(state), "fem seed 0   0 %  0/2,000");
}

TEST(Progress, BarIsHalfFullHalfWay) {
  EXPECT_EQ(progress_bar(half_way(), 200),
            "fem seed 0 [############............]  50 %  1,000/2,000  100 step/s  ETA 0:10  loss 0.03");
}

TEST(Progress, BarNeverWraps) {
  for (const int columns : {1, 10, 40, 80})
    EXPECT_LT(static_cast<int>(progress_bar(half_way(), columns).size()), columns);
}

TEST(Progress, At80ColumnsTheBarGivesWayToLossAndRate) {
  ProgressState state = half_way();
  state.label = "train";
  state.note = "loss 1.234  12,345 tokens/s";
  EXPECT_EQ(progress_bar(state, 80), "train  50 %  1,000/2,000  100 step/s  ETA 0:10  loss 1.234  12,345 tokens/s");
  EXPECT_EQ(progress_bar(state, 89),
            "train [#####.....]  50 %  1,000/2,000  100 step/s  ETA 0:10  loss 1.234  12,345 tokens/s");
  state.note += "  validation loss 1.345";
  EXPECT_EQ(progress_bar(state, 80), "train  50 %  1,000/2,000  100 step/s  ETA 0:10  loss 1.234  12,345 tokens/s");
  EXPECT_EQ(progress_bar(state, 60), "train  50 %  1,000/2,000  100 step/s  ETA 0:10  loss 1.234");
}

TEST(Progress, TheRateLeavesOutWhatWasDoneBesideAndTheTimeLeftDoesNot) {
  ProgressState state = half_way();
  state.beside = 5;
  EXPECT_EQ(progress_line(state), "fem seed 0  50 %  1,000/2,000  200 step/s  ETA 0:10  loss 0.03");
}

TEST(Progress, EmptyJobIsComplete) {
  ProgressState state = half_way();
  state.done = state.total = 0;
  state.note = "";
  EXPECT_EQ(progress_line(state).substr(0, 17), "fem seed 0 100 % ");
}

}  // namespace
}  // namespace fem
