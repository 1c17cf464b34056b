#pragma once

#include <memory>
#include <vector>

#include "fem/forecaster.h"
#include "models/forecast_body.h"

namespace fem {

// Places of the targets among the columns of a model.
at::Tensor target_places(const ForecasterOptions& model);

// A forecaster as a function, bound to weights that somebody else holds.
class BoundForecaster {
 public:
  // weights in the order of forecaster_parameters(options).
  BoundForecaster(const ForecasterOptions& options, const std::vector<at::Tensor>& weights);

  Forecast forecast(const at::Tensor& windows, bool training, Trace* trace = nullptr) const;
  // [B, horizon, targets] of values as they stand in the table.
  at::Tensor predict(const at::Tensor& values) const;

  at::Tensor standardised(const at::Tensor& values) const;
  at::Tensor targets_of(const at::Tensor& values) const;

  const ForecasterOptions options;

 private:
  at::Tensor like_;              // a weight: the dtype of all, which may change under our hands
  at::Tensor mean_, deviation_;  // float64 [columns]
  at::Tensor targets_;           // places of the targets among the columns
  Predict body_;
};

}  // namespace fem
