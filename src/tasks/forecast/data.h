#pragma once

#include "tasks/forecast/options.h"

namespace fem {

// A table as a model reads it.
struct ForecastData {
  Series series;
  SeriesSplit split;
  Windows windows;  // of standardised values, float32
};

// Rows that the paper's models read for a horizon.
int64_t published_input(int64_t horizon);

// Throws one sentence if the table is not one that such a model can be made for.
Series series_of(const ForecastDataOptions& options);

// The model for a table: columns, targets, input and horizon, and the mean and deviation of the training rows.
ForecasterOptions forecaster_for(const ForecastOptions& options, const Series& series);

// The windows of a table for a model, whose columns the table must have, in any order.
ForecastData forecast_data(const ForecasterOptions& model, const ForecastDataOptions& options, Series series);

// The columns of a table that a model reads, in its order: [T, columns] float64.
at::Tensor columns_of(const Series& series, const ForecasterOptions& model);

// Rows of a season of a table; 0: unknown.
int64_t season_of(const Series& series, const ForecastDataOptions& options);

}  // namespace fem
