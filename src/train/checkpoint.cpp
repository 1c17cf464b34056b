#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <vector>

#include "io/atomic_file.h"
#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";
// Not checkpoints: one being written, one being removed.
constexpr std::string_view kUnfinished = "unfinished-", kOld = "old-";

std::string name_of(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "%s%08lld", kStep.data(), static_cast<long long>(step));
  return name;
}

std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  int64_t step = 0;
  if (!name.starts_with(kStep)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(step) : std::nullopt;
}

std::vector<Checkpoints::Entry> entries_of(const fs::path& folder) {
  std::vector<Checkpoints::Entry> entries;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
    if (const auto step = step_of(entry.path())) entries.push_back({entry.path(), *step});
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return entries;
}

}  // namespace

Checkpoints::Checkpoints(const fs::path& run, int64_t keep) : folder_(run / "checkpoints"), keep_(keep) {}

std::optional<Checkpoints::Entry> Checkpoints::newest() const {
  const std::vector<Entry> entries = entries_of(folder_);
  return entries.empty() ? std::nullopt : std::optional(entries.back());
}

fs::path Checkpoints::at(int64_t step) const {
  const fs::path folder = folder_ / name_of(step);
  FEM_CHECK(fs::is_directory(folder), "train: expected a checkpoint at ", folder.string(),
            ", but it is not there; start the run again");
  return folder;
}

void Checkpoints::write(int64_t step, const std::function<void(const fs::path&)>& fill, std::optional<int64_t> best) {
  fs::create_directories(folder_);
  remove_leftovers();
  const fs::path name = folder_ / name_of(step), unfinished = folder_ / (std::string(kUnfinished) + name_of(step));
  if (!fs::exists(name)) {  // else a run that stopped right here and went on
    try {
      fs::create_directory(unfinished);
      fill(unfinished);
      rename_folder(unfinished, name);
    } catch (...) {
      std::error_code ignored;
      fs::remove_all(unfinished, ignored);
      throw;
    }
  }
  if (best == step) point_to_best(step);
  const std::vector<Entry> entries = entries_of(folder_);
  for (size_t i = 0; i + keep_ < entries.size(); ++i) {
    if (entries[i].step == best) continue;
    // Under another name first: a half-removed folder must not look like a checkpoint.
    const fs::path old = folder_ / (std::string(kOld) + entries[i].folder.filename().string());
    fs::rename(entries[i].folder, old);
    fs::remove_all(old);
  }
}

void Checkpoints::point_to_best(int64_t step) const {
  const fs::path link = folder_.parent_path() / "best", made = folder_.parent_path() / "best.tmp";
  fs::remove(made);
  fs::create_directory_symlink(folder_.filename() / name_of(step), made);
  fs::rename(made, link);
}

void Checkpoints::remove_leftovers() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kUnfinished) || name.starts_with(kOld)) fs::remove_all(entry.path());
  }
}

}  // namespace fem
