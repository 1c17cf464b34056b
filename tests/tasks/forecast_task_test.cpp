#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fem/io/model_folder.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"
#include "tasks/forecast/data.h"
#include "tasks/forecast/report.h"
#include "tasks/forecast/task.h"
#include "tasks/runs_of_a_task.h"
#include "train/trainer.h"

namespace fem {
namespace {

using nlohmann::json;
using testing::fails_with;

class ForecastTasks : public testing::TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    std::string text = "date,a,b,still\n";
    for (int hour = 0; hour < 200; ++hour) {
      char row[96];
      std::snprintf(row, sizeof(row), "2020-01-%02d %02d:00,%.3f,%.3f,7\n", 1 + hour / 24, hour % 24,
                    10 + 3 * std::sin(hour * M_PI / 12), 100 * std::cos(hour * 0.7) + hour);
      text += row;
    }
    write(folder / "table.csv", text);
  }

  ForecastOptions options(const json& data = {}, const json& model = {}) const {
    json recipe{{"model", {{"n_embd", 16}, {"n_head", 2}, {"n_layer", 1}, {"mlp_width", 16}, {"mlp", "gelu"}}},
                {"data", {{"csv", (folder / "table.csv").string()}, {"horizon", 6}, {"input", 20}}}};
    recipe["model"]["mixer"] = {{"conv_hidden", 4}, {"use_rope", false}};
    recipe.merge_patch({{"data", data.is_null() ? json::object() : data}});
    recipe.merge_patch({{"model", model.is_null() ? json::object() : model}});
    return forecast_options_from_json(recipe);
  }
  std::unique_ptr<Task> task(const ForecastOptions& of) const {
    return forecast_task(of, series_of(of.data), training());
  }
  std::pair<Forecaster, ForecastData> saved(const Task& task, const ForecastOptions& of) const {
    task.save(folder / "model");
    Forecaster model = load_forecaster(folder / "model");
    return {model, forecast_data(model->options, of.data, series_of(of.data))};
  }
  static TrainOptions training() {
    TrainOptions train;
    train.batch = 8;
    train.learning_rate = 3e-3;
    train.warmup_steps = 0;
    train.precision = Precision::kFloat32;
    return train;
  }
  static std::shared_ptr<ProcessGroup> alone() { return ProcessGroup::connect({}, std::chrono::seconds(1)); }
};

TEST_F(ForecastTasks, TrainingLowersTheLossOfEveryBody) {
  for (const auto& [name, body] : Spelling<ForecastBodyType>::values) {
    const bool encoder = body == ForecastBodyType::kPatches || body == ForecastBodyType::kInverted;
    json model{{"body", name}};
    model["mixer"] = {{"conv_hidden", 4}, {"use_rope", false}, {"causal", !encoder}};
    const auto own = task(options({}, model));
    Trainer trainer(*own, training(), alone());
    const double first = trainer.step().loss;
    double last = first;
    for (int i = 0; i < 60; ++i) last = trainer.step().loss;
    EXPECT_LT(last, 0.8 * first) << name;
  }
}

TEST_F(ForecastTasks, MeasuresAreThoseOfAllWindows) {
  const ForecastOptions of = options({{"targets", {"b", "a"}}});
  const auto own = task(of);
  auto [model, data] = saved(*own, of);
  const at::NoGradGuard no_grad;
  Trainer trainer(*own, training(), alone());
  const NamedValues end = trainer.validate(/*whole=*/true), between = trainer.validate(/*whole=*/false);
  for (const auto& [part, mse, mae] :
       {std::tuple{SeriesPart::kValidation, "loss", "mae"}, {SeriesPart::kTest, "test_mse", "test_mae"}}) {
    const Windows::Rows rows = data.windows.range(part, 0, data.windows.count(part));
    const at::Tensor error = model(rows.past) - model->targets_of(rows.future);
    EXPECT_NEAR(value_of(end, mse), error.square().mean().item<double>(), 1e-5);
    EXPECT_NEAR(value_of(end, mae), error.abs().mean().item<double>(), 1e-5);
  }
  ASSERT_EQ(between.size(), 2);  // the test is not looked at before the end
  EXPECT_EQ(between[0], end[0]);
  const Windows::Rows test = data.windows.range(SeriesPart::kTest, 0, 1);
  EXPECT_TRUE(model->targets_of(test.future).select(2, 0).equal(test.future.select(2, 1)));
}

TEST_F(ForecastTasks, SomeWindowsAreEvenlySpreadInEveryValidationAndInTheTest) {
  const ForecastOptions of = options({{"validation_windows", 4}, {"test_windows", 7}});
  const auto own = task(of);
  auto [model, data] = saved(*own, of);
  const at::NoGradGuard no_grad;
  Trainer trainer(*own, training(), alone());
  const NamedValues end = trainer.validate(/*whole=*/true);
  EXPECT_EQ(trainer.validate(/*whole=*/false)[0], end[0]);
  for (const auto& [part, mse, windows] :
       {std::tuple{SeriesPart::kValidation, "loss", 4}, {SeriesPart::kTest, "test_mse", 7}}) {
    const int64_t all = data.windows.count(part), apart = all / windows;
    ASSERT_GT(apart, 1);
    const Windows::Rows rows = data.windows.at(part, at::arange(0, all, apart, at::kLong));
    const at::Tensor error = model(rows.past) - model->targets_of(rows.future);
    EXPECT_NEAR(value_of(end, mse), error.square().mean().item<double>(), 1e-5);
  }
}

TEST_F(ForecastTasks, StandardisesByTheTrainingRows) {
  const ForecastOptions of = options();
  const Series series = series_of(of.data);
  const ForecasterOptions model = forecaster_for(of, series);
  const at::Tensor train = series.values.slice(0, 0, 140).select(1, 1);
  EXPECT_NEAR(model.mean[1], train.mean().item<double>(), 1e-9);
  EXPECT_NEAR(model.deviation[1], train.std(0, /*unbiased=*/false).item<double>(), 1e-9);
  EXPECT_EQ(model.deviation[2], 1.0);  // of a column that does not move
  EXPECT_EQ(forecaster_for(options({{"input", 0}}), series).input, 28);
}

TEST_F(ForecastTasks, EveryEpochReadsEveryWindowOnce) {
  const auto own = task(options());  // 115 windows
  double once = 0, twice = 0;
  for (int64_t row = 0; row < 115; ++row) once += own->loss({row, 1}).sum.item<double>();
  for (int64_t row = 115; row < 230; ++row) twice += own->loss({row, 1}).sum.item<double>();
  EXPECT_NEAR(once, twice, 1e-3 * once);
  EXPECT_NE(own->loss({0, 8}).sum.item<double>(), own->loss({115, 8}).sum.item<double>());
  EXPECT_EQ(training_for(options(), series_of(options().data), 8, 4),
            (json{{"steps", 60}, {"warmup_steps", 3}, {"validate_every", 15}, {"checkpoint_every", 15}}));
}

TEST_F(ForecastTasks, TwoProcessesMeasureAndLearnAsOne) {
  testing::expect_two_processes_do_as_one([&] { return task(options()); }, training());
}

TEST_F(ForecastTasks, InterruptedAndResumedEqualsUninterruptedBitForBit) {
  const ForecastOptions of = options({}, {{"dropout", 0.2}});
  testing::expect_resumed_bit_for_bit([&] { return task(of); }, training(), folder);
}

TEST_F(ForecastTasks, GoOnOnlyWithTheirTable) {
  const auto before = task(options());
  Trainer first(*before, training(), alone());
  first.step();
  first.save(folder / "run");
  std::string text = read(folder / "table.csv");
  text.replace(text.find("2020-01-01 03:00") + 17, 2, "99");
  write(folder / "table.csv", text);
  const auto after = task(options());
  Trainer second(*after, training(), alone());
  EXPECT_TRUE(fails_with("table.csv\" changed", [&] { second.load(folder / "run"); }));
}

TEST_F(ForecastTasks, ForecastTheRowsAfterTheLast) {
  task(options({{"targets", {"b"}}}))->save(folder / "model");
  TrainedForecaster trained = load_trained_forecaster(folder / "model", folder / "table.csv");
  const Series series = series_of(trained.data);
  const at::Tensor future = forecast_end(trained, series);
  std::ostringstream out;
  write_forecast(out, trained, series, future);
  std::istringstream lines(out.str());
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "date,b");
  std::getline(lines, line);
  EXPECT_EQ(line.substr(0, 17), "2020-01-09 08:00,");
  EXPECT_NEAR(std::stod(line.substr(17)), future[0][0].item<double>(), 1e-4);
  EXPECT_EQ(future.size(0), 6);
}

TEST_F(ForecastTasks, AreRefusedWithASentence) {
  EXPECT_TRUE(
      fails_with("there is no column 'c' of numbers to forecast", [&] { task(options({{"targets", {"c"}}})); }));
  EXPECT_TRUE(fails_with("expected at least input + horizon = 206 rows to train on, got 140",
                         [&] { task(options({{"input", 200}})); }));
  EXPECT_TRUE(fails_with("model.horizon follows from [data]; leave it out", [&] { options({}, {{"horizon", 3}}); }));
  EXPECT_TRUE(
      fails_with("no column changes within the 140 training rows", [&] { task(options({{"columns", {"still"}}})); }));
  EXPECT_TRUE(fails_with("expected horizon of at least 1 row, got 0", [&] { task(options({{"horizon", 0}})); }));
}

}  // namespace
}  // namespace fem
