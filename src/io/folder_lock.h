#pragma once

#include <filesystem>
#include <string>

namespace fem {

// A folder that is one process's alone as long as one lives, by the file `lock` in it. The lock goes with the process,
// whatever ends it; the file stays and says who had it last. On a disk without locks a warning says so.
class FolderLock {
 public:
  // Throws a sentence of `who` ("train") that names the process at work if another one has it.
  FolderLock(const std::filesystem::path& folder, const std::string& who);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  static constexpr const char* kName = "lock";

 private:
  const int file_;
};

}  // namespace fem
