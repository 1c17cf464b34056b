// Forecasters as operators, for languages that hold the parameters themselves.
#include "models/forecaster.h"

#include <ATen/ATen.h>

#include "bindings/library.h"
#include "bindings/task_model.h"
#include "io/forecaster_config.h"
#include "io/json.h"
#include "models/model_folder.h"

namespace fem {
namespace {

TaskModelConfig<ForecasterOptions> parsed_forecaster(std::string_view config) {
  const ForecasterOptions options = with_widths(forecaster_options_from_json(parse_json(config, "forecaster options")));
  return {options, forecaster_parameters(options)};
}

BoundForecaster bound_forecaster(at::TensorList parameters, std::string_view config) {
  return {checked_config<parsed_forecaster>("forecaster", parameters, config).options, parameters.vec()};
}

at::Tensor forecast_windows(const at::Tensor& windows, at::TensorList parameters, std::string_view config,
                            bool training) {
  return bound_forecaster(parameters, config).forecast(windows, training).future;
}

at::Tensor forecast_values(const at::Tensor& values, at::TensorList parameters, std::string_view config) {
  return bound_forecaster(parameters, config).predict(values);
}

}  // namespace

void register_forecaster(torch::Library& m) {
  m.def("forecast(Tensor windows, Tensor[] parameters, str config, bool training=False) -> Tensor", forecast_windows);
  m.def("forecast_values(Tensor values, Tensor[] parameters, str config) -> Tensor", forecast_values);
  register_task_model<parsed_forecaster, forecaster_config, read_forecaster>(m, "forecaster");
}

}  // namespace fem
