// How good forecasts are, over all windows of a part of a table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/windows.h"

namespace fem {

// Standardised windows [B, input, columns] -> forecasts [B, horizon, targets].
using Forecasting = std::function<at::Tensor(const at::Tensor& windows)>;

// Sums over windows, of every row of the horizon and every target.
struct ForecastScore {
  int64_t windows = 0;
  at::Tensor squared, absolute;  // [horizon, targets] float64

  double mse() const;
  double mae() const;
  // Means over windows: [horizon] over the targets, and [targets] over the horizon.
  at::Tensor by_lead(const at::Tensor& sums) const;
  at::Tensor by_target(const at::Tensor& sums) const;
};

struct ScoreOptions {
  SeriesPart part = SeriesPart::kTest;
  int64_t windows = 0;                                           // about so many, evenly spread; 0: all
  int64_t batch = 32;                                            // windows of one call
  int64_t share = 0, shares = 1;                                 // only every shares-th batch, for several processes
  std::function<void(int64_t done, int64_t all)> on_batch = {};  // what it throws ends the reading
};

// How many windows a score is of, over all shares.
int64_t scored_windows(const Windows& windows, const ScoreOptions& options);
// targets: their places among the columns.
ForecastScore score_forecasts(const Windows& windows, const at::Tensor& targets, const Forecasting& forecasting,
                              const ScoreOptions& options);

// What a forecast must beat. All take whole windows, of whatever length, and look at their ends.
Forecasting last_value(int64_t horizon, const at::Tensor& targets);
// What stood there a season before, or as many seasons as it takes.
Forecasting seasonal(int64_t horizon, int64_t season, const at::Tensor& targets);
// One linear map for all targets of the last rows of a window, without the mean of these, to the future, without it
// too: closed form with a penalty, on all training windows.
inline constexpr int64_t kRidgeRows = 512;
Forecasting fit_ridge(const Windows& windows, const at::Tensor& targets,
                      const std::function<void(int64_t done, int64_t all)>& on_batch = {});

}  // namespace fem
