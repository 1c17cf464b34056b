#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "io/folder_lock.h"

namespace fem {

std::filesystem::path config_path(const std::filesystem::path& run);
std::filesystem::path result_path(const std::filesystem::path& run);

// The recipe of a run as it was resolved (config.json), null if there is none.
nlohmann::json recipe_of_run(const std::filesystem::path& run);

// The folder of a run, made if there is none and locked as long as one lives. A folder with anything in it that is no
// run is refused before anything is written.
class RunFolder {
 public:
  explicit RunFolder(const std::filesystem::path& path);

 private:
  const FolderLock lock_;
};

}  // namespace fem
