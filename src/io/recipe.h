// Recipes: TOML files that configure a run, as JSON for the options' visitors.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fem {

// The tables of a TOML file. `base = "other.toml"` at its top starts from another recipe beside it; the file's own
// values win.
nlohmann::json load_recipe(const std::filesystem::path& path);

// "train.learning_rate=3e-4": sets one value. What is after = is read as TOML, or as plain text if it is none.
void set_value(nlohmann::json& recipe, const std::string& assignment);

}  // namespace fem
