// ForecasterOptions as JSON: config.json of a forecaster's folder.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "fem/forecaster.h"

namespace fem {

nlohmann::json to_json(const ForecasterOptions& options);
// Absent fields keep their defaults; an unknown field or a value of the wrong type is an error.
ForecasterOptions forecaster_options_from_json(const nlohmann::json& json);

// config.json of a model folder, and its inverse: the options with the type of the model, none of the sizes absent.
nlohmann::json forecaster_config(const ForecasterOptions& options);
ForecasterOptions options_of_forecaster_config(nlohmann::json config);

}  // namespace fem
