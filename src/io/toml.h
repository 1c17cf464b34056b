// TOML from outside, as JSON: the one way in.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fem {

// Of a key, and of brackets in brackets: what is read goes down by recursion, in the library too.
constexpr int kDeepestToml = 16;

// whose: what errors begin with, "recipe: a.toml"; they go on with the line.
nlohmann::json parse_toml(const std::string& text, const std::string& whose);

// parse_toml of a file, whose name errors have after `whose`.
nlohmann::json read_toml(const std::filesystem::path& path, const std::string& whose);

}  // namespace fem
