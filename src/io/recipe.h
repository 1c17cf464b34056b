// Recipes: TOML files that configure a run, as JSON for the options' visitors.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fem {

// The tables of a TOML file. `base = "other.toml"` at its top starts from another recipe beside it; the file's own
// values win.
nlohmann::json load_recipe(const std::filesystem::path& path);

// The file of a recipe: a .toml, relative to a folder, or a name in configs/lm (1m-fem-softmax) or configs
// (argmax/demo).
std::filesystem::path find_recipe(const std::string& name, const std::filesystem::path& relative_to = {});

// "train.learning_rate=3e-4": sets one value. What is after = is read as TOML, or as plain text if it is none.
void set_value(nlohmann::json& recipe, const std::string& assignment);

}  // namespace fem
