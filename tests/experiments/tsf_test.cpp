// The grid of Table 4: what each cell trains, on which windows, and how large it is.
#include <gtest/gtest.h>

#include <set>

#include "experiments/tsf/plan.h"
#include "io/temporary_folder.h"
#include "models/backbone.h"
#include "nn/parameters.h"
#include "support/error_text.h"
#include "tasks/forecast/task.h"
#include "train/options.h"

namespace fem {
namespace {

using nlohmann::json;
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
  own.mixers.insert(own.mixers.begin(), {"attention", ""});
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
    EXPECT_EQ(data.input, std::set<std::string>({"dlinear", "patches", "inverted"}).contains(labels[0]) ? 336 : input);
    EXPECT_EQ(data.validation_windows + data.test_windows, 0);
    EXPECT_TRUE(data.as_is);
    EXPECT_EQ(data.train_rows, labels[1].starts_with("ETTh") ? 8640 : labels[1].starts_with("ETTm") ? 34560 : 36887);
    if (labels == std::vector<std::string>{"softmax+CLTG", "ETTh1 96"}) {
      const TrainOptions train = train_options_from_json(run.recipe.at("train"));
      EXPECT_EQ(train.steps, 100 * 236);  // 7,521 windows, 32 a step
      EXPECT_EQ(train.patience, 12);
      EXPECT_EQ(train.learning_rate, 6e-4);
    }
  }
}

TEST_F(TsfGrid, MiniHasEveryRowOfTheTableAndAllTestWindowsOfHourlyTables) {
  const Grid grid = grid_of(plan("mini"));
  std::set<std::string> models;
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const auto& labels = grid.cells[cell].labels;
    models.insert(labels[0]);
    const GridRun run = run_of(grid, cell, 0, 1);
    EXPECT_EQ(forecast_options_from_json(run.recipe).data.test_windows, labels[1].starts_with("ETTh") ? 0 : 2800);
    const bool light = labels[0] == "dlinear" || labels[0] == "inverted";
    EXPECT_EQ(run.steps(), labels[0] == "dlinear" ? 2000 : 400);
    EXPECT_EQ(run.recipe["train"]["batch"], light ? 32 : 4);
    EXPECT_EQ(run.recipe["data"].value("validation_windows", 0), light ? 0 : 250);
  }
  EXPECT_EQ(models,
            (std::set<std::string>{"softmax", "softmax+CLTG", "gla", "gla+CLTG", "rnn_softmax", "rnn_softmax+CLTG",
                                   "mamba", "mamba+CLTG", "dlinear", "patches", "inverted"}));
  EXPECT_EQ(by_table(plan("mini")).size(), 3);
  EXPECT_EQ(tsf_cost(grid), "440 runs, at most 240,000 steps");
}

TEST_F(TsfGrid, MediumHasThePublishedRatesAndBatchesAndTheStepsOfMini) {
  const Grid grid = grid_of(plan("medium")), mini = grid_of(plan("mini"));
  EXPECT_EQ(grid.cells.size(), 88U);
  bool seen = false;
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const GridRun run = run_of(grid, cell, 0, 1);
    EXPECT_EQ(run.recipe["train"]["batch"], 32);
    EXPECT_EQ(run.steps(), run_of(mini, cell, 0, 1).steps());
    EXPECT_FALSE(run.recipe["data"].contains("validation_windows"));
    if (grid.cells[cell].labels[0] == "rnn_softmax+CLTG, batch 32") {
      EXPECT_EQ(choices_at(grid, cell).size(), 1U);
      EXPECT_EQ(run.recipe["train"]["learning_rate"], 6e-4);
      seen = true;
    }
  }
  EXPECT_TRUE(seen);
}

TEST_F(TsfGrid, AnotherInputIsThatOfTheMixersAlone) {
  TsfPlan own = plan("medium");
  own.input = 1500;
  const Grid grid = grid_of(own);
  EXPECT_EQ(grid.cells[0].labels[0], "softmax, batch 32, input 1500");
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const json recipe = run_of(grid, cell, 0, 1).recipe;
    EXPECT_EQ(recipe["data"]["input"], recipe["model"].value("body", "segments") == "segments" ? 1500 : 336);
  }
}

TEST_F(TsfGrid, EveryRowsRateIsChosenOnASeedOfItsOwnForShortAndForLongHorizons) {
  const Grid grid = grid_of(plan("mini"));
  EXPECT_EQ(grid.choosing_seeds, std::vector<int64_t>{0});
  EXPECT_EQ(grid.seeds, (std::vector<int64_t>{1, 2, 3}));
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const auto &labels = grid.cells[cell].labels, &at = grid.cells[chooser_of(grid, cell)].labels;
    const bool far = labels[1].ends_with("336") || labels[1].ends_with("720");
    EXPECT_EQ(at, (std::vector<std::string>{labels[0], labels[1].substr(0, 5) + (far ? " 336" : " 96")}));
    const std::vector<Variant>& choices = choices_at(grid, cell);
    ASSERT_EQ(choices.size(), 2U) << labels[0];
    const bool dlinear = labels[0] == "dlinear", inverted = labels[0] == "inverted";
    EXPECT_EQ(choices[0].label, dlinear    ? "learning_rate=0.005"
                                : inverted ? "learning_rate=0.0003"
                                           : "learning_rate=0.001");
    EXPECT_EQ(choices[1].label, dlinear    ? "learning_rate=0.05"
                                : inverted ? "learning_rate=0.001"
                                           : "learning_rate=0.003");
  }
  // As published there is nothing to choose from but for DLinear.
  const Grid published = grid_of(plan("paper"));
  for (size_t cell = 0; cell < published.cells.size(); ++cell)
    EXPECT_EQ(choosing_seeds_at(published, cell).empty(), published.cells[cell].labels[0] != "dlinear");
}

TEST_F(TsfGrid, ARecordDoesNotSayWhereTheTableLies) {
  TsfPlan own = plan("mini"), read = own;
  read.data.clear();
  for (const auto& grids : {std::pair{grid_of(own), grid_of(read)}, {ridge_grid_of(own), ridge_grid_of(read)}}) {
    const GridRun run = run_of(grids.first, 0, 0, 1), same = run_of(grids.second, 0, 0, 1);
    EXPECT_EQ(run.recipe, same.recipe);
    EXPECT_EQ(run.recipe["data"]["csv"], "ETTh1.csv");
    EXPECT_EQ(run.places, std::vector<std::string>{"data.csv=\"" + (folder / "ETTh1.csv").string() + "\""});
    EXPECT_TRUE(same.places.empty());
  }
  own.bodies = {"dlinear"};
  EXPECT_TRUE(ridge_grid_of(own).cells.empty());
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
