#include "tasks/forecast/data.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "util/check.h"
#include "util/grouped.h"
#include "util/nearest.h"

namespace fem {
namespace {

SeriesSplit split_for(const ForecastDataOptions& o, int64_t rows) {
  return split_of(rows, {o.train_rows, o.validation_rows, o.test_rows});
}

// The published one; a short table has a fifth of its training rows.
int64_t input_for(const ForecastDataOptions& o, int64_t train_rows) {
  if (o.input > 0) return o.input;
  return std::min(published_input(o.horizon), std::max<int64_t>(train_rows / 5, 1));
}

}  // namespace

int64_t published_input(int64_t horizon) { return horizon <= 96 ? 1024 : horizon <= 336 ? 2048 : 4096; }

Series series_of(const ForecastDataOptions& o) {
  FEM_CHECK(!o.csv.empty(), "forecast: expected a table; name it with --csv FILE");
  return read_series({.csv = o.csv, .time = o.time, .columns = o.columns, .as_is = o.as_is});
}

ForecasterOptions forecaster_for(const ForecastOptions& o, const Series& series) {
  FEM_CHECK(o.data.horizon >= 1, "forecast: expected horizon of at least 1 row, got ", o.data.horizon);
  FEM_CHECK(o.data.input >= 0, "forecast: expected input of at least 1 row, got ", o.data.input);
  const SeriesSplit split = split_for(o.data, series.rows());
  ForecasterOptions model = o.model;
  model.horizon = o.data.horizon;
  model.input = input_for(o.data, split.train);
  model.columns = series.names;
  model.targets = o.data.targets.empty() ? series.names : o.data.targets;
  for (const std::string& target : model.targets)
    FEM_CHECK(std::count(series.names.begin(), series.names.end(), target) > 0, "forecast: there is no column '",
              target, "' of numbers to forecast", did_you_mean(target, series.names));
  const at::Tensor train = series.values.slice(0, 0, split.train);
  const at::Tensor mean = train.mean(0), deviation = train.std(0, /*unbiased=*/false);
  bool moves = false;
  for (int64_t i = 0; i < mean.size(0); ++i) {
    const double own = deviation[i].item<double>();
    moves = moves || own > 0;
    model.mean.push_back(mean[i].item<double>());
    model.deviation.push_back(own > 0 ? own : 1.0);
  }
  FEM_CHECK(moves, "forecast: no column changes within the ", grouped(split.train),
            " training rows: there is nothing to learn");
  model = with_widths(model);
  check(model);
  return model;
}

at::Tensor columns_of(const Series& series, const ForecasterOptions& model) {
  std::vector<int64_t> places;
  for (const std::string& name : model.columns) {
    const auto found = std::find(series.names.begin(), series.names.end(), name);
    FEM_CHECK(found != series.names.end(), "forecast: the model reads a column '", name,
              "', which the table does not have", did_you_mean(name, series.names));
    places.push_back(found - series.names.begin());
  }
  return series.values.index_select(1, at::tensor(places, at::kLong));
}

ForecastData forecast_data(const ForecasterOptions& model, const ForecastDataOptions& options, Series series) {
  const SeriesSplit split = split_for(options, series.rows());
  const at::Tensor mean = at::tensor(model.mean, at::kDouble), deviation = at::tensor(model.deviation, at::kDouble);
  const at::Tensor values = ((columns_of(series, model) - mean) / deviation).to(at::kFloat);
  Windows windows(values, split, model.input, model.horizon);
  return {std::move(series), split, std::move(windows)};
}

int64_t season_of(const Series& series, const ForecastDataOptions& options) {
  if (options.season > 0) return options.season;
  return series.notation ? series.notation->season(series.step) : 0;
}

}  // namespace fem
