#include "experiments/tsf/table.h"

#include <algorithm>
#include <map>

#include "evaluate/forecasts.h"
#include "io/recipe.h"
#include "models/forecaster.h"
#include "tasks/forecast/data.h"
#include "tasks/forecast/task.h"
#include "util/progress.h"
#include "util/table.h"

namespace fem {
namespace {

Json measured_ridge(const GridRun& run) {
  nlohmann::json recipe = load_recipe(find_recipe("forecast/fem-softmax"));
  recipe["data"] = run.recipe["data"];
  for (const std::string& assignment : run.places) set_value(recipe, assignment);
  const ForecastOptions options = forecast_options_from_json(recipe);
  const Series series = series_of(options.data);
  const ForecasterOptions model = forecaster_for(options, series);
  const ForecastData data = forecast_data(model, options.data, series);
  const at::Tensor targets = target_places(model);
  const Forecasting ridge = fit_ridge(data.windows, targets);
  const ForecastScore validation = score_forecasts(data.windows, targets, ridge, {.part = SeriesPart::kValidation});
  const ForecastScore test = score_forecasts(data.windows, targets, ridge, {.windows = options.data.test_windows});
  return {
      {"parameters", kRidgeRows * options.data.horizon},
      {"goal", {{"measure", "loss"}, {"larger_is_better", false}}},
      {"measures",
       {{"loss", validation.mse()}, {"mae", validation.mae()}, {"test_mse", test.mse()}, {"test_mae", test.mae()}}}};
}

}  // namespace

void measure_ridge(const TsfPlan& plan, SweepResults& results) {
  const Grid grid = ridge_grid_of(plan);
  std::vector<GridRun> missing;
  for (size_t cell = 0; cell < grid.cells.size(); ++cell)
    if (const GridRun run = run_of(grid, cell, 0, grid.seeds[0]); !results.finished(run)) missing.push_back(run);
  if (missing.empty()) return;
  Progress progress("ridge", static_cast<int64_t>(missing.size()), "tables");
  int64_t done = 0;
  for (const GridRun& run : missing) {
    results.add_finished(grid, run, measured_ridge(run));
    progress.update(++done);
  }
}

std::string tsf_table(const TsfPlan& plan, const std::vector<SweepRow>& rows, const SweepResults& results) {
  std::map<std::string, std::map<std::string, double>> found;  // model, column
  std::vector<std::string> models;
  const auto add = [&](const std::vector<SweepRow>& of, size_t seeds) {
    for (const SweepRow& row : of) {
      if (std::count(models.begin(), models.end(), row.labels[0]) == 0) models.push_back(row.labels[0]);
      const auto mse = std::find_if(row.measures.begin(), row.measures.end(),
                                    [](const auto& measure) { return measure.first == "test_mse"; });
      if (mse != row.measures.end() && mse->second.count == seeds)
        found[row.labels[0]][row.labels[1]] = mse->second.mean;
    }
  };
  const Grid ridge = ridge_grid_of(plan);
  add(sweep_rows(ridge, results), ridge.seeds.size());
  add(rows, plan.seeds.size());

  std::vector<std::string> header{"model"};
  header.insert(header.end(), plan.columns.begin(), plan.columns.end());
  header.emplace_back("mean");
  Table table(header);
  for (const std::string& model : models) {
    std::vector<std::string> line{model};
    std::vector<double> all;
    for (const std::string& label : plan.columns) {
      const auto figure = found[model].find(label);
      line.push_back(figure == found[model].end() ? "-" : fixed(figure->second, 3));
      if (figure != found[model].end()) all.push_back(figure->second);
    }
    line.push_back(all.size() == plan.columns.size() ? fixed(summarize(all).mean, 3) : "-");
    table.add(line);
  }
  return table.str();
}

}  // namespace fem
