#include "io/forecaster_config.h"

#include "io/backbone_model_config.h"

namespace fem {
namespace {

using nlohmann::json;

constexpr const char* kForecasterType = "fem_forecaster";

const auto kVisitForecaster = [](auto& options, auto&& visit) { visit_forecaster_options(options, visit); };

}  // namespace

json to_json(const ForecasterOptions& options) { return backbone_model_to_json(options, kVisitForecaster); }

ForecasterOptions forecaster_options_from_json(const json& in) {
  return backbone_model_from_json<ForecasterOptions>(in, "forecaster options", kVisitForecaster);
}

json forecaster_config(const ForecasterOptions& options) {
  json config = to_json(options);
  config["model_type"] = kForecasterType;
  return config;
}

ForecasterOptions options_of_forecaster_config(json config) {
  return forecaster_options_from_json(fields_of_config(
      std::move(config), kForecasterType,
      {"n_embd", "n_head", "n_layer", "mlp_width", "horizon", "input", "columns", "targets", "mean", "deviation"}));
}

}  // namespace fem
