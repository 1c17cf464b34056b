// LanguageModelOptions as JSON: config.json of a model folder, [model] of a recipe; and the backbone's fields alone.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "fem/language_model.h"

namespace fem {

// The fields of the mixer's table that are the model's and cannot be set there.
inline constexpr std::array<std::string_view, 2> kFromTheModel{"n_embd", "n_head"};

nlohmann::json to_json(const LanguageModelOptions& options);
nlohmann::json to_json(const BackboneOptions& options);

// Absent fields keep their defaults; an unknown field or a value of the wrong type is an error.
LanguageModelOptions language_model_options_from_json(const nlohmann::json& json);
// config.json of a model folder, and its inverse: the options with the type of the model, none of the sizes absent.
nlohmann::json model_config(const LanguageModelOptions& options);
LanguageModelOptions options_of_model_config(nlohmann::json config);
BackboneOptions backbone_options_from_json(const nlohmann::json& json);

}  // namespace fem
