// MixerOptions as JSON: config.json of a model folder, goldens, Python.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "fem/options.h"

namespace fem {

nlohmann::json to_json(const MixerOptions& options);

// Absent fields keep their defaults; an unknown field or a value of the wrong type is an error.
MixerOptions mixer_options_from_json(const nlohmann::json& json);

}  // namespace fem
