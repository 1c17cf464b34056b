#pragma once

#include <filesystem>
#include <string>

#include "util/check.h"

namespace fem {

// The name of a file beside another, which a script reads; what is written there is gone with the object.
class Beside {
 public:
  // who complains if there is something already.
  Beside(const std::filesystem::path& path, const std::string& suffix, const char* who)
      : path_(path.string() + ".tmp" + suffix) {
    FEM_CHECK(!std::filesystem::exists(path_), who, ": expected to write ", path_.string(),
              " for a moment, but it is there; remove or rename it");
  }
  ~Beside() {
    std::error_code none;
    std::filesystem::remove(path_, none);
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path path_;
};

}  // namespace fem
