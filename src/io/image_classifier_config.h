// ImageClassifierOptions as JSON: config.json of a classifier's folder.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "fem/image_classifier.h"

namespace fem {

nlohmann::json to_json(const ImageClassifierOptions& options);
// Absent fields keep their defaults; an unknown field or a value of the wrong type is an error.
ImageClassifierOptions image_classifier_options_from_json(const nlohmann::json& json);

// config.json of a model folder, and its inverse: the options with the type of the model, none of the sizes absent.
nlohmann::json image_classifier_config(const ImageClassifierOptions& options);
ImageClassifierOptions options_of_image_classifier_config(nlohmann::json config);

}  // namespace fem
