#pragma once

#include <nlohmann/json_fwd.hpp>

namespace fem {

// Refuses to go on as another run than the checkpoint's, naming what differs. How often something is kept or shown is
// free to change, and train.steps may grow. Files are the same if they hold the same, in the same order. A field that
// the checkpoint does not know, of a version that had no such choice, is the same if it has its default.
void check_same_run(const nlohmann::json& saved, const nlohmann::json& now, const nlohmann::json& defaults);

}  // namespace fem
