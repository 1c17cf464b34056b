// Recipes: TOML files that configure a run, as JSON for the options' visitors.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace fem {

// The tables of a TOML file. `base = "other.toml"` at its top starts from another recipe, beside it or shipped; the
// file's own values win.
nlohmann::json load_recipe(const std::filesystem::path& path);

// The names of the recipes that came with this program: 1m-fem-softmax in configs/lm, argmax/demo in configs.
std::vector<std::string> shipped_recipes();

// The file of a recipe: a .toml, relative to a folder, or one that came with this program, with or without ".toml".
std::filesystem::path find_recipe(const std::string& name, const std::filesystem::path& relative_to = {});

// "train.learning_rate=3e-4": sets one value. What is after = is read as TOML, or as plain text if it is none.
void set_value(nlohmann::json& recipe, const std::string& assignment);

}  // namespace fem
