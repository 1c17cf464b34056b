// How the checkpoints of a run are named: <run>/checkpoints/step-00000100. Nothing else in that folder is one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fem {

struct CheckpointFolder {
  std::filesystem::path folder;
  int64_t step;
};

std::filesystem::path checkpoints_path(const std::filesystem::path& run);
std::string checkpoint_name(int64_t step);
// The step of exactly such a name, with a prefix of our own before it.
std::optional<int64_t> checkpoint_step(const std::string& name, const std::string& prefix = "");

// By their steps; none if there are none.
std::vector<CheckpointFolder> checkpoints_of(const std::filesystem::path& run);

// What to do about a damaged folder: "; the checkpoint before it is ...", if it is one of several.
std::string remedy_for_checkpoint(const std::filesystem::path& folder);

}  // namespace fem
