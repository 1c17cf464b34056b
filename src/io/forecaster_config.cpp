#include "io/forecaster_config.h"

#include "io/language_model_config.h"
#include "io/options_json.h"

namespace fem {
namespace {

using nlohmann::json;

constexpr const char* kForecasterType = "fem_forecaster";

}  // namespace

json to_json(const ForecasterOptions& options) {
  json out = to_json(static_cast<const BackboneOptions&>(options));
  visit_forecaster_options(options,
                           [&](const char* name, const auto& value, const char*) { write_option(out[name], value); });
  return out;
}

ForecasterOptions forecaster_options_from_json(const json& in) {
  ForecasterOptions options;
  json own = json::object(), rest = in;
  visit_forecaster_options(options, [&](const char* name, const auto&, const char*) {
    if (!in.is_object() || !in.contains(name)) return;
    own[name] = in[name];
    rest.erase(name);
  });
  OptionsReader reader("forecaster options", own);
  visit_forecaster_options(options, reader);
  static_cast<BackboneOptions&>(options) = backbone_options_from_json(rest);
  return options;
}

json forecaster_config(const ForecasterOptions& options) {
  json config = to_json(options);
  config["model_type"] = kForecasterType;
  return config;
}

ForecasterOptions options_of_forecaster_config(json config) {
  FEM_CHECK(config.is_object() && config.value("model_type", json()) == kForecasterType,
            "expected a JSON object with \"model_type\": \"", kForecasterType, "\"; it is another model's or damaged");
  config.erase("model_type");
  const ForecasterOptions options = forecaster_options_from_json(config);
  for (const char* name :
       {"n_embd", "n_head", "n_layer", "mlp_width", "horizon", "input", "columns", "targets", "mean", "deviation"})
    FEM_CHECK(config.contains(name), "expected the field ", name, ", which is missing");
  return options;
}

}  // namespace fem
