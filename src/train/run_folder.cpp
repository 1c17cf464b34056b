#include "train/run_folder.h"

#include <nlohmann/json.hpp>

#include "io/checkpoint_folders.h"
#include "io/json.h"
#include "io/read_file.h"
#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

// What a process leaves that was killed before its config.json was there; log.txt is a sweep's.
bool is_beginning(const std::string& name) {
  return name == FolderLock::kName || name == "log.txt" || (name.starts_with("config.json.") && name.ends_with(".tmp"));
}

// The file or folder that shows path to be no run; nothing if it is one, or could become one.
std::string foreign_entry(const fs::path& path) {
  std::error_code none;
  if (fs::exists(config_path(path), none)) return recipe_of_run(path).is_null() ? config_path(path).filename() : "";
  if (!checkpoints_of(path).empty()) return "";
  for (const fs::directory_entry& entry : fs::directory_iterator(path, none))
    if (!is_beginning(entry.path().filename().string())) return entry.path().filename();
  return "";
}

const fs::path& ready(const fs::path& path) {
  std::error_code none, failed;
  FEM_CHECK(!fs::exists(path, none) || fs::is_directory(path, none), "train: expected --out to be a folder, but ",
            path.string(), " is a file");
  std::string foreign = foreign_entry(path);
  // A run that began between two looks has its config.json by the second; the lock is its answer.
  if (!foreign.empty()) foreign = foreign_entry(path);
  FEM_CHECK(foreign.empty(), "train: ", path.string(), " is not empty and not a run (it holds ", foreign,
            "), and nothing in it was touched; choose another --out");
  fs::create_directories(path, failed);
  FEM_CHECK(!failed, "train: the folder ", path.string(), " cannot be made: ", failed.message());
  return path;
}

}  // namespace

fs::path config_path(const fs::path& run) { return run / "config.json"; }

fs::path result_path(const fs::path& run) { return run / "result.json"; }

nlohmann::json recipe_of_run(const fs::path& run) {
  std::error_code none;
  if (!fs::is_regular_file(config_path(run), none)) return {};
  const auto content = json_if_whole(read_file(config_path(run), "train"));
  return content && content->contains("task") && content->contains("train") ? *content : nlohmann::json();
}

RunFolder::RunFolder(const fs::path& path) : lock_(ready(path), "train") {}

}  // namespace fem
