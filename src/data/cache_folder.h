#pragma once

#include <filesystem>

namespace fem {

// Where token files are kept unless a recipe says otherwise: fem in XDG_CACHE_HOME, or in ~/.cache.
std::filesystem::path user_cache_folder();

// A folder of this process alone among the system's temporary files; it goes when this does.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A folder in the making: filled under a temporary name beside its own, which it takes whole or never. What processes
// of this machine that are no longer alive left behind is removed.
class NewFolder {
 public:
  explicit NewFolder(const std::filesystem::path& target);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }  // where to write meanwhile
  void publish();  // somebody else's may have come first: then that one stays

 private:
  std::filesystem::path target_, path_;
};

// Held by whoever makes a folder of a cache: processes that start at once make it once, not all of them. Other folders
// of the same cache may be made meanwhile. Waiting for it ends when a signal comes.
class MakerLock {
 public:
  explicit MakerLock(const std::filesystem::path& folder);
  ~MakerLock();
  MakerLock(const MakerLock&) = delete;
  MakerLock& operator=(const MakerLock&) = delete;

 private:
  int file_;
};

}  // namespace fem
