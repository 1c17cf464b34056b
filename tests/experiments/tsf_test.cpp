// The grid of Table 4: what each cell trains, on which windows, and how large it is.
#include <gtest/gtest.h>

#include "experiments/tsf/plan.h"
#include "io/temporary_folder.h"
#include "models/backbone.h"
#include "nn/parameters.h"
#include "support/error_text.h"
#include "tasks/forecast/task.h"
#include "train/options.h"

namespace fem {
namespace {

using testing::fails_with;

class TsfGrid : public testing::TemporaryFolder {
 protected:
  TsfPlan plan(const std::string& preset) {
    for (const TsfTable& table : tsf_tables()) write(folder / (table.name + ".csv"), "date,a\n");
    TsfPlan plan = tsf_preset(preset);
    plan.data = folder;
    return plan;
  }
};

TEST_F(TsfGrid, EveryMixerHasAsManyParametersAsAttention) {
  TsfPlan own = plan("paper");
  own.columns = {"ETTh1 96", "weather 720"};
  const Grid grid = grid_of(own);
  std::map<std::string, double> attention;
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const auto& labels = grid.cells[cell].labels;
    const ForecasterOptions model = forecast_options_from_json(run_of(grid, cell, 0, 1).recipe).model;
    if (model.body != ForecastBodyType::kSegments) continue;
    const auto count = static_cast<double>(parameter_count(backbone_parameters(model)));
    if (labels[0] == "attention") attention[labels[1]] = count;
    EXPECT_NEAR(count / attention.at(labels[1]), 1, 0.01) << labels[0] << " " << labels[1];
    EXPECT_EQ(model.n_embd, labels[1] == "ETTh1 96" ? 64 : 128);
    EXPECT_EQ(model.mlp, MlpType::kGelu);
    EXPECT_FALSE(model.mixer.use_rope.value_or(true));
  }
  EXPECT_EQ(attention.size(), 2);
}

TEST_F(TsfGrid, RunsArePublishedWindowsAndLengths) {
  const Grid grid = grid_of(plan("paper"));
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const auto& labels = grid.cells[cell].labels;
    const GridRun run = run_of(grid, cell, 0, 1);
    const ForecastDataOptions data = forecast_options_from_json(run.recipe).data;
    const int64_t input = data.horizon == 96 ? 1024 : data.horizon == 720 ? 4096 : 2048;
    EXPECT_EQ(data.input, labels[0] == "dlinear" ? 336 : input);
    EXPECT_TRUE(data.as_is);
    EXPECT_EQ(data.train_rows, labels[1].starts_with("ETTh") ? 8640 : labels[1].starts_with("ETTm") ? 34560 : 36887);
    if (labels == std::vector<std::string>{"softmax+CLTG", "ETTh1 96"}) {
      const TrainOptions train = train_options_from_json(run.recipe.at("train"));
      EXPECT_EQ(train.steps, 100 * 236);  // 7,521 windows, 32 a step
      EXPECT_EQ(train.patience, 12);
      EXPECT_EQ(train.learning_rate, 6e-4);
    }
  }
  EXPECT_EQ(by_table(plan("mini")).size(), 3);
  EXPECT_EQ(tsf_cost(grid_of(plan("mini"))), "150 runs, at most 120,000 steps of 32 windows");
}

TEST_F(TsfGrid, WhatIsNotThereIsNamed) {
  TsfPlan own = plan("mini");
  own.columns = {"ETTh3 96"};
  EXPECT_TRUE(fails_with("got 'ETTh3 96'; did you mean ETTh1?", [&] { grid_of(own); }));
  own.columns = {"ETTh1"};
  EXPECT_TRUE(fails_with("expected tables and horizons such as 'ETTh1 96', got 'ETTh1'", [&] { grid_of(own); }));
  own.columns = {"ETTh1 96"};
  own.data = folder / "nowhere";
  EXPECT_TRUE(
      fails_with("fetch it with scripts/get_data ETTh1, or name its folder with --data", [&] { grid_of(own); }));
}

}  // namespace
}  // namespace fem
