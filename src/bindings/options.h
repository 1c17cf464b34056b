#pragma once

#include <string_view>

#include "fem/options.h"

namespace fem {

// The options a JSON object spells, checked; parsed once per thread and text, so that a call of the layer does not.
const MixerOptions& options_of(std::string_view config);

}  // namespace fem
