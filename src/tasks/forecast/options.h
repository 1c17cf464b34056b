// Forecasting a table: which table, which part of it is for what, and what learns it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/series.h"
#include "data/windows.h"
#include "fem/forecaster.h"

namespace fem {

struct ForecastDataOptions {
  std::filesystem::path csv;
  std::string time;
  std::vector<std::string> columns, targets;
  bool as_is = false;
  int64_t horizon = 96;
  int64_t input = 0;
  int64_t train_rows = 0, validation_rows = 0, test_rows = 0;
  int64_t season = 0;
  int64_t validation_windows = 0, test_windows = 0;
};

template <typename Options, typename Visitor>
void visit_forecast_data(Options& o, Visitor&& visit) {
  visit("csv", o.csv, "a table with a header, a column of times and columns of numbers; .gz too");
  visit("time", o.time, "the column of times; \"\": the first, if it looks like one");
  visit("columns", o.columns, "the columns to read; none: all that hold numbers");
  visit("targets", o.targets, "those of them to forecast; none: all");
  visit("as_is", o.as_is, "rows and values as they stand: no sentinels, times in any order");
  visit("horizon", o.horizon, "rows of a forecast");
  visit("input", o.input,
        "rows of the past it is made of; 0: 1024 to 4096 by the horizon, if the table is long enough");
  visit("train_rows", o.train_rows, "rows to learn from, the first; 0: seven tenths");
  visit("validation_rows", o.validation_rows, "rows to choose by, the next; 0: one tenth");
  visit("test_rows", o.test_rows, "rows to report, the next; 0: two tenths");
  visit("season", o.season, "rows of a season, for the seasonal baseline; 0: a day, a week or a year by the times");
  visit("validation_windows", o.validation_windows, "about so many windows, evenly spread, of a validation; 0: all");
  visit("test_windows", o.test_windows, "about so many windows, evenly spread, of the test at the end; 0: all");
}

struct ForecastOptions {
  ForecastDataOptions data;
  ForecasterOptions model;  // of [model] the body and the backbone; the rest follows from the data
};

}  // namespace fem
