// LanguageModelOptions as JSON: config.json of a model folder, [model] of a recipe; and the backbone's fields alone.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "fem/language_model.h"

namespace fem {

nlohmann::json to_json(const LanguageModelOptions& options);

// Absent fields keep their defaults; an unknown field or a value of the wrong type is an error.
LanguageModelOptions language_model_options_from_json(const nlohmann::json& json);
BackboneOptions backbone_options_from_json(const nlohmann::json& json);

}  // namespace fem
