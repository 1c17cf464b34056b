// The checksums of a folder's files, in the file `checksums` beside them: lines of `xxh128sum`, which also checks them.
#pragma once

#include <filesystem>
#include <string>

namespace fem {

// Of every file that is there now.
void write_checksums(const std::filesystem::path& folder);

bool has_checksums(const std::filesystem::path& folder);

// "step-00000100/model.safetensors is damaged: ...", empty if every file is there and as it was. A folder without
// checksums is damaged.
std::string damage_in(const std::filesystem::path& folder);

// Throws if a file that is about to be read is not what the checksums beside it say. Without them nothing is known of a
// file, and nothing checked.
void check_file(const std::filesystem::path& path);

}  // namespace fem
