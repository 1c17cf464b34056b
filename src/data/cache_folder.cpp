#include "data/cache_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>

#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".tmp";

// "@host@": process ids say nothing about the processes of other machines on a shared disk.
std::string machine_mark() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return std::string("@") + name + "@";
}

// The process that makes a temporary folder of this machine, 0 for other names.
pid_t maker_of(const std::string& name) {
  const std::string mark = machine_mark();
  const size_t at = name.find(mark);
  if (at == std::string::npos || !name.ends_with(kEnding)) return 0;
  pid_t process = 0;
  std::from_chars(name.data() + at + mark.size(), name.data() + name.size(), process);
  return process;
}

void remove_abandoned(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const pid_t process = maker_of(entry.path().filename().string());
    if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

NewFolder::NewFolder(const fs::path& target) : target_(target) {
  static std::atomic<uint64_t> count{0};
  path_ = target.string() + machine_mark() + std::to_string(::getpid()) + "-" + std::to_string(count++) + kEnding;
  const fs::path parent = target.parent_path();
  std::error_code error;
  if (!parent.empty()) fs::create_directories(parent, error);
  if (!error) fs::create_directory(path_, error);
  FEM_CHECK(!error, "cache: the folder ", path_.string(), " cannot be made: ", error.message());
  remove_abandoned(parent.empty() ? "." : parent);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void NewFolder::publish() {
  const bool renamed = ::rename(path_.c_str(), target_.c_str()) == 0;
  FEM_CHECK(renamed || errno == ENOTEMPTY || errno == EEXIST, "cache: ", target_.string(),
            " cannot be made: ", std::strerror(errno));
}

// The lock is the cache folder's own and goes with the process, whatever ends it. Without locks (some network disks)
// everyone makes the folder, and the first one stays.
MakerLock::MakerLock(const fs::path& cache) {
  std::error_code ignored;
  fs::create_directories(cache, ignored);
  file_ = ::open(cache.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file_ >= 0) ::flock(file_, LOCK_EX);
}

MakerLock::~MakerLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace fem
