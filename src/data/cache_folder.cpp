#include "data/cache_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "util/check.h"
#include "util/hash.h"
#include "util/interrupt.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".tmp";
constexpr const char* kRemedy = "; name a folder that can be written by --set data.cache=DIR";

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

fs::path user_cache_folder() {
  const auto of = [](const char* name) { return fs::path(std::getenv(name) ? std::getenv(name) : ""); };
  if (const fs::path cache = of("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "fem";
  FEM_CHECK(of("HOME").is_absolute(), "cache: expected HOME or XDG_CACHE_HOME to name a folder for token files, but ",
            "neither does", kRemedy);
  return of("HOME") / ".cache" / "fem";
}

ScratchFolder::ScratchFolder() {
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / "fem-XXXXXX").string();
  FEM_CHECK(!error && ::mkdtemp(name.data()), "cache: a temporary folder cannot be made as ", name, ": ",
            error ? error.message() : std::strerror(errno), "; set TMPDIR to a folder that can be written");
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

// The name can be foreseen, but mkdir makes a new folder or none: nobody else's is ever written into. mkdtemp's would
// be closed to the people with whom a cache is shared.
NewFolder::NewFolder(const fs::path& target) : target_(target) {
  static std::atomic<uint64_t> count{0};
  const fs::path parent = target.parent_path();
  std::error_code error;
  if (!parent.empty()) fs::create_directories(parent, error);
  bool made = false;
  while (!error && !made) {
    path_ = target.string() + machine_mark() + std::to_string(::getpid()) + "-" + std::to_string(count++) + kEnding;
    made = ::mkdir(path_.c_str(), 0777) == 0;
    if (!made && errno != EEXIST) error.assign(errno, std::generic_category());
  }
  FEM_CHECK(!error, "cache: the folder ", target.string(), " cannot be made: ", error.message(), kRemedy);
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

// A byte of its own for every folder, in one file of the cache; the lock goes with the process, whatever ends it.
// Without locks (some network disks) everyone makes the folder, and the first one stays.
MakerLock::MakerLock(const fs::path& folder) {
  std::error_code ignored;
  fs::create_directories(folder.parent_path(), ignored);
  file_ = ::open((folder.parent_path() / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(fnv1a(folder.filename().string()) >> 2);
  lock.l_len = 1;
  bool told = false;
  while (file_ >= 0 && ::fcntl(file_, F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES)) {
    throw_if_interrupted();
    if (!told) std::fprintf(stderr, "waiting for another process that makes the same token files\n");
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

MakerLock::~MakerLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace fem
