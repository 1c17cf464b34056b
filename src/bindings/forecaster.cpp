// Forecasters as operators, for languages that hold the parameters themselves.
#include "models/forecaster.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <nlohmann/json.hpp>

#include "bindings/library.h"
#include "bindings/parameters.h"
#include "io/forecaster_config.h"
#include "io/json.h"
#include "models/model_folder.h"

namespace fem {
namespace {

struct ForecasterConfig {
  ForecasterOptions options;
  std::vector<ParameterSpec> parameters;
};

ForecasterConfig parsed_forecaster(std::string_view config) {
  const ForecasterOptions options = with_widths(forecaster_options_from_json(parse_json(config, "forecaster options")));
  return {options, forecaster_parameters(options)};
}

BoundForecaster bound_forecaster(at::TensorList parameters, std::string_view config) {
  const ForecasterConfig& forecaster = parsed_once<parsed_forecaster>(config);
  check_parameters("forecaster", forecaster.parameters, parameters);
  return {forecaster.options, parameters.vec()};
}

at::Tensor forecast_windows(const at::Tensor& windows, at::TensorList parameters, std::string_view config,
                            bool training) {
  return bound_forecaster(parameters, config).forecast(windows, training).future;
}

at::Tensor forecast_values(const at::Tensor& values, at::TensorList parameters, std::string_view config) {
  return bound_forecaster(parameters, config).predict(values);
}

void initialize_forecaster(at::TensorList parameters, std::string_view config) {
  const ForecasterConfig& forecaster = parsed_once<parsed_forecaster>(config);
  check_parameters("forecaster", forecaster.parameters, parameters);
  initialize_parameters(forecaster.parameters, parameters);
}

std::tuple<c10::Dict<std::string, at::Tensor>, std::string> load_forecaster_folder(std::string_view folder) {
  const ForecasterFile file = read_forecaster(folder);
  c10::Dict<std::string, at::Tensor> parameters;
  for (const auto& [name, tensor] : file.parameters) parameters.insert(name, tensor);
  return {parameters, to_json(file.options).dump()};
}

}  // namespace

void register_forecaster(torch::Library& m) {
  m.def("forecast(Tensor windows, Tensor[] parameters, str config, bool training=False) -> Tensor", forecast_windows);
  m.def("forecast_values(Tensor values, Tensor[] parameters, str config) -> Tensor", forecast_values);
  m.def("forecaster_parameters(str config) -> (str[] names, Tensor[] shapes)",
        [](std::string_view config) { return names_and_shapes(parsed_once<parsed_forecaster>(config).parameters); });
  m.def("initialize_forecaster(Tensor(a!)[] parameters, str config) -> ()", initialize_forecaster);
  // Every field, checked; and the text of config.json.
  m.def("forecaster_options(str config) -> str",
        [](std::string_view config) { return to_json(parsed_once<parsed_forecaster>(config).options).dump(); });
  m.def("forecaster_file(str config) -> str", [](std::string_view config) {
    return forecaster_config(parsed_once<parsed_forecaster>(config).options).dump(2) + "\n";
  });
  m.def("load_forecaster(str folder) -> (Dict(str, Tensor) parameters, str config)", load_forecaster_folder);
}

}  // namespace fem
