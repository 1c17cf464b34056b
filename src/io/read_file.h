#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fem {

constexpr uint64_t kLargestText = 16 << 20;  // bytes of a configuration

// A whole file of at most `most` bytes. whose: what errors begin with, "recipe" for "recipe: a.toml cannot be read
// ...".
std::string read_file(const std::filesystem::path& path, const std::string& whose, uint64_t most = kLargestText);

}  // namespace fem
