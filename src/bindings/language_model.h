#pragma once

#include <memory>
#include <string_view>

#include "models/language_model.h"

namespace fem {

// The model of a configuration with these parameters, checked.
std::shared_ptr<const BoundLanguageModel> bound_language_model(std::string_view config, at::TensorList parameters);

}  // namespace fem
