#include "evaluate/forecasts.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "util/check.h"

namespace fem {
namespace {

constexpr double kPenalty = 1.0;  // of the ridge, beside sums over all windows

// Rows of windows for one product.
constexpr int64_t kWindowsAtOnce = 512;

int64_t rows_apart(const Windows& windows, const ScoreOptions& o) {
  return o.windows > 0 ? std::max<int64_t>(windows.count(o.part) / o.windows, 1) : 1;
}

}  // namespace

double ForecastScore::mse() const { return by_lead(squared).mean().item<double>(); }
double ForecastScore::mae() const { return by_lead(absolute).mean().item<double>(); }

at::Tensor ForecastScore::by_lead(const at::Tensor& sums) const {
  return sums.mean(1) / static_cast<double>(std::max<int64_t>(windows, 1));
}
at::Tensor ForecastScore::by_target(const at::Tensor& sums) const {
  return sums.mean(0) / static_cast<double>(std::max<int64_t>(windows, 1));
}

int64_t scored_windows(const Windows& windows, const ScoreOptions& o) {
  const int64_t apart = rows_apart(windows, o);
  return (windows.count(o.part) + apart - 1) / apart;
}

ForecastScore score_forecasts(const Windows& windows, const at::Tensor& targets, const Forecasting& forecasting,
                              const ScoreOptions& o) {
  const at::NoGradGuard no_grad;
  const at::Tensor zeros = at::zeros({windows.horizon(), targets.size(0)}, at::kDouble);
  ForecastScore score{.squared = zeros.clone(), .absolute = zeros.clone()};
  const int64_t apart = rows_apart(windows, o), all = scored_windows(windows, o);
  const at::Tensor numbers = at::arange(all, at::kLong) * apart;
  for (int64_t first = o.share * o.batch; first < all; first += o.shares * o.batch) {
    const int64_t last = std::min(first + o.batch, all);
    const Windows::Rows rows = windows.at(o.part, numbers.slice(0, first, last));
    const at::Tensor error = (forecasting(rows.past) - rows.future.index_select(2, targets)).to(at::kDouble);
    score.squared += error.square().sum(0);
    score.absolute += error.abs().sum(0);
    score.windows += last - first;
    if (o.on_batch) o.on_batch(std::min(first + o.shares * o.batch, all), all);
  }
  return score;
}

Forecasting last_value(int64_t horizon, const at::Tensor& targets) {
  return [=](const at::Tensor& windows) {
    return windows.slice(1, -1).index_select(2, targets).expand({-1, horizon, -1});
  };
}

Forecasting seasonal(int64_t horizon, int64_t season, const at::Tensor& targets) {
  return [=](const at::Tensor& windows) {
    FEM_CHECK(windows.size(1) >= season, "seasonal: expected windows of at least a season, ", season, " rows, got ",
              windows.size(1));
    const at::Tensor place = at::arange(horizon, at::kLong).remainder(season) + (windows.size(1) - season);
    return windows.index_select(2, targets).index_select(1, place);
  };
}

Forecasting fit_ridge(const Windows& windows, const at::Tensor& targets,
                      const std::function<void(int64_t, int64_t)>& on_batch) {
  const int64_t rows = std::min(kRidgeRows, windows.input()), horizon = windows.horizon(), width = rows + horizon;
  const int64_t all = windows.count(SeriesPart::kTrain);
  at::Tensor products = at::zeros({width, width}, at::kDouble);
  for (int64_t first = 0; first < all; first += kWindowsAtOnce) {
    const int64_t last = std::min(first + kWindowsAtOnce, all);
    const Windows::Rows read = windows.range(SeriesPart::kTrain, first, last);
    const at::Tensor past = read.past.slice(1, -rows).index_select(2, targets),
                     future = read.future.index_select(2, targets);
    const at::Tensor level = past.mean(1, /*keepdim=*/true);
    const at::Tensor flat = at::cat({past - level, future - level}, 1).transpose(1, 2).reshape({-1, width});
    products += at::mm(flat.t(), flat).to(at::kDouble);
    if (on_batch) on_batch(last, all);
  }
  const at::Tensor past = products.slice(0, 0, rows);
  const at::Tensor system = past.slice(1, 0, rows) + kPenalty * at::eye(rows, at::kDouble);
  const at::Tensor map = at::linalg_solve(system, past.slice(1, rows)).to(at::kFloat);  // [rows, horizon]
  return [=](const at::Tensor& given) {
    const at::Tensor own = given.slice(1, -rows).index_select(2, targets);
    const at::Tensor level = own.mean(1, /*keepdim=*/true);
    return at::matmul((own - level).transpose(1, 2), map).transpose(1, 2) + level;
  };
}

}  // namespace fem
