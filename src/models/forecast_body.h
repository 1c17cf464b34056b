// What makes a forecast of standardised windows. A new one is a file in this folder and a row of forecast_body_of.
#pragma once

#include <functional>
#include <vector>

#include "fem/forecaster.h"

namespace fem {

struct Forecast {
  at::Tensor future;  // [B, horizon, targets]
  at::Tensor past;  // [B, M, targets]: what the model says of the last M rows of the window from those before; or none
};

// windows [B, input, columns], places of the targets among the columns; training: dropout.
using Predict =
    std::function<Forecast(const at::Tensor& windows, const at::Tensor& targets, bool training, Trace* trace)>;

class ForecastBody {
 public:
  virtual ~ForecastBody() = default;

  virtual void check(const ForecasterOptions&) const {}
  virtual std::vector<ParameterSpec> parameters(const ForecasterOptions& options) const = 0;
  virtual Predict bind(const ForecasterOptions& options, const std::vector<at::Tensor>& weights) const = 0;
};

const ForecastBody& forecast_body_of(ForecastBodyType type);

const ForecastBody& segment_body();
const ForecastBody& dlinear_body();
const ForecastBody& patch_body();
const ForecastBody& inverted_body();

}  // namespace fem
