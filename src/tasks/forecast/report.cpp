#include "tasks/forecast/report.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <ostream>

#include "data/csv.h"
#include "fem/io/model_folder.h"
#include "models/forecaster.h"
#include "tasks/forecast/task.h"
#include "tasks/trained_model.h"
#include "util/check.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

std::string shortest(double value) {
  char written[32];
  const auto [end, error] = std::to_chars(written, written + sizeof(written), static_cast<float>(value));
  return {written, end};
}

std::vector<double> list_of(const at::Tensor& values) {
  const at::Tensor flat = values.to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

std::vector<double> deviations_of_targets(const ForecasterOptions& model) {
  return list_of(at::tensor(model.deviation, at::kDouble).index_select(0, target_places(model)));
}

}  // namespace

TrainedForecaster load_trained_forecaster(const fs::path& place, const fs::path& csv) {
  const TrainedFolder found = trained_folder(place, forecast_entry().name);
  TrainedForecaster trained{load_forecaster(found.folder), found.folder, {}};
  if (found.recipe.is_object()) trained.data = forecast_options_from_json(found.recipe).data;
  FEM_CHECK(!csv.empty() || !trained.data.csv.empty(), "forecast: ", place.string(),
            " is a model without its run: name the table with --csv");
  std::error_code none;
  if (!csv.empty() && fs::weakly_canonical(csv, none) != fs::weakly_canonical(trained.data.csv, none)) {
    trained.data.csv = csv;
    trained.data.train_rows = trained.data.validation_rows = trained.data.test_rows = 0;
  }
  trained.data.columns = trained.model->options.columns;
  return trained;
}

std::vector<ScoredForecast> score_with_baselines(TrainedForecaster& trained, const ForecastData& data, SeriesPart part,
                                                 const OnForecastStep& on_step) {
  const at::NoGradGuard no_grad;
  const ForecasterOptions& model = trained.model->options;
  const at::Tensor targets = target_places(model);
  const int64_t season = season_of(data.series, trained.data);
  std::vector<ScoredForecast> scores;
  const auto add = [&](const std::string& name, const Forecasting& forecasting) {
    const auto tell = [&](int64_t done, int64_t all) { on_step(name, done, all); };
    scores.push_back({name, score_forecasts(data.windows, targets, forecasting, {.part = part, .on_batch = tell})});
  };
  add("model", [&](const at::Tensor& windows) { return trained.model->forward(windows); });
  add("last value", last_value(model.horizon, targets));
  if (season > 0 && season <= model.input) add("seasonal", seasonal(model.horizon, season, targets));
  add("ridge",
      fit_ridge(data.windows, targets, [&](int64_t done, int64_t all) { on_step("ridge, fitted", done, all); }));
  return scores;
}

std::string score_tables(const std::vector<ScoredForecast>& scores, const ForecasterOptions& model) {
  Table all({"forecast", "MSE", "MAE"}), targets({"target", "MSE", "MAE", "MAE, own unit"});
  for (const auto& [name, score] : scores) all.add({name, fixed(score.mse(), 4), fixed(score.mae(), 4)});
  const ForecastScore& own = scores.front().score;
  const std::vector<double> squared = list_of(own.by_target(own.squared)),
                            absolute = list_of(own.by_target(own.absolute)), units = deviations_of_targets(model);
  for (size_t i = 0; i < squared.size(); ++i)
    targets.add({model.targets[i], fixed(squared[i], 4), fixed(absolute[i], 4), shortest(absolute[i] * units[i])});
  return all.str() + "\n" + targets.str();
}

Json score_document(const std::vector<ScoredForecast>& scores, const ForecasterOptions& model) {
  Json out{{"horizon", model.horizon},
           {"input", model.input},
           {"windows", scores.front().score.windows},
           {"targets", model.targets},
           {"scores", Json::array()}};
  for (const auto& [name, score] : scores)
    out["scores"].push_back({{"forecast", name},
                             {"mse", score.mse()},
                             {"mae", score.mae()},
                             {"mse_by_lead", list_of(score.by_lead(score.squared))},
                             {"mae_by_lead", list_of(score.by_lead(score.absolute))},
                             {"mse_by_target", list_of(score.by_target(score.squared))},
                             {"mae_by_target", list_of(score.by_target(score.absolute))}});
  return out;
}

at::Tensor forecast_end(TrainedForecaster& trained, const Series& series) {
  const int64_t input = trained.model->options.input;
  FEM_CHECK(series.rows() >= input, "forecast: the model makes a forecast of ", grouped(input),
            " rows, but the table has ", grouped(series.rows()),
            "; give a longer one, or train with a shorter --input");
  const at::Tensor values = columns_of(series, trained.model->options);
  return trained.model->predict(values.slice(0, -input).unsqueeze(0))[0];
}

void write_forecast(std::ostream& out, const TrainedForecaster& trained, const Series& series,
                    const at::Tensor& future) {
  out << csv_cell(series.notation ? series.time : "row");
  for (const std::string& target : trained.model->options.targets) out << ',' << csv_cell(target);
  out << '\n';
  for (int64_t i = 0; i < future.size(0); ++i) {
    out << csv_cell(series.stamp_text(series.rows() + i));
    for (const double value : list_of(future[i])) out << ',' << shortest(value);
    out << '\n';
  }
}

Json picture_document(const TrainedForecaster& trained, const Series& series, const at::Tensor& future,
                      const std::vector<ScoredForecast>& scores) {
  const ForecasterOptions& model = trained.model->options;
  const int64_t past = std::min({series.rows(), model.input, 3 * model.horizon});
  const at::Tensor targets = target_places(model);
  const at::Tensor rows = columns_of(series, model).slice(0, -past).index_select(1, targets);
  Json out{{"horizon", model.horizon}, {"targets", model.targets}, {"stamps", Json::array()}};
  for (int64_t row = series.rows() - past; row < series.rows() + model.horizon; ++row)
    out["stamps"].push_back(series.stamp_text(row));
  for (size_t i = 0; i < model.targets.size(); ++i) {
    out["past"].push_back(list_of(rows.select(1, static_cast<int64_t>(i))));
    out["future"].push_back(list_of(future.select(1, static_cast<int64_t>(i))));
  }
  if (!scores.empty()) out["errors"] = score_document(scores, model)["scores"];
  return out;
}

}  // namespace fem
