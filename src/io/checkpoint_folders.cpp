#include "io/checkpoint_folders.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpoints = "checkpoints";
constexpr std::string_view kStep = "step-";

}  // namespace

fs::path checkpoints_path(const fs::path& run) { return run / kCheckpoints; }

std::string checkpoint_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "%s%08lld", kStep.data(), static_cast<long long>(step));
  return name;
}

std::optional<int64_t> checkpoint_step(const std::string& name, const std::string& prefix) {
  const size_t digits = prefix.size() + kStep.size();
  int64_t step = -1;
  if (name.size() > digits) std::from_chars(name.data() + digits, name.data() + name.size(), step);
  const bool ours = step >= 0 && name == prefix + checkpoint_name(step);
  return ours ? std::optional(step) : std::nullopt;
}

std::vector<CheckpointFolder> checkpoints_of(const fs::path& run) {
  std::vector<CheckpointFolder> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_path(run), none))
    if (const auto step = checkpoint_step(entry.path().filename().string()); step && entry.is_directory(none))
      found.push_back({entry.path(), *step});
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

std::string remedy_for_checkpoint(const fs::path& folder) {
  const std::optional<int64_t> step = checkpoint_step(folder.filename().string());
  if (!step || folder.parent_path().filename() != kCheckpoints) return "; take another copy of it";
  std::string before;
  for (const CheckpointFolder& other : checkpoints_of(folder.parent_path().parent_path()))
    if (other.step < *step) before = other.folder.string();
  return before.empty() ? "; there is no checkpoint before it" : "; the checkpoint before it is " + before;
}

}  // namespace fem
