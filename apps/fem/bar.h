#pragma once

#include <functional>
#include <memory>
#include <string>

#include "util/progress.h"

namespace fem {

// A progress bar that begins with the first call, told how much is done of how much.
inline std::function<void(int64_t done, int64_t all)> bar_of(const std::string& what, const std::string& unit) {
  const auto progress = std::make_shared<std::unique_ptr<Progress>>();
  return [progress, what, unit](int64_t done, int64_t all) {
    if (!*progress) *progress = std::make_unique<Progress>(what, all, unit);
    (*progress)->update(done);
  };
}

}  // namespace fem
