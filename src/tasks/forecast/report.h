// What a trained forecaster is worth, and what it says of the rows to come.
#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "evaluate/forecasts.h"
#include "io/jsonl.h"
#include "tasks/forecast/data.h"

namespace fem {

// A forecaster as it lies in a folder, and the table it was trained on if the folder is of a run.
struct TrainedForecaster {
  Forecaster model;
  std::filesystem::path folder;
  ForecastDataOptions data;
};
// place: a run, of which the best checkpoint is taken, or a model folder. csv: another table than the run's.
TrainedForecaster load_trained_forecaster(const std::filesystem::path& place, const std::filesystem::path& csv);

// A forecaster or a baseline on the windows of one part.
struct ScoredForecast {
  std::string name;
  ForecastScore score;
};

// The model first, then last value, seasonal where a season is known, ridge. on_step: what is being done, and how far.
using OnForecastStep = std::function<void(const std::string& what, int64_t done, int64_t all)>;
std::vector<ScoredForecast> score_with_baselines(TrainedForecaster& trained, const ForecastData& data, SeriesPart part,
                                                 const OnForecastStep& on_step);

// Errors of all, and the model's target by target; standardised, and in the units of the table.
std::string score_tables(const std::vector<ScoredForecast>& scores, const ForecasterOptions& model);
Json score_document(const std::vector<ScoredForecast>& scores, const ForecasterOptions& model);

// The rows that follow the last of a table: [horizon, targets] float64.
at::Tensor forecast_end(TrainedForecaster& trained, const Series& series);

// As a table like the one that was read: times, and a column for every target.
void write_forecast(std::ostream& out, const TrainedForecaster& trained, const Series& series,
                    const at::Tensor& future);

// What scripts/plot_forecast.py draws: the end of the table, the forecast and, if there are any, errors by lead time.
Json picture_document(const TrainedForecaster& trained, const Series& series, const at::Tensor& future,
                      const std::vector<ScoredForecast>& scores);

}  // namespace fem
