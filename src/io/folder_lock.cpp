#include "io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>

#include "util/check.h"

namespace fem {
namespace {

// "process 123 on host, since 2026-01-31 12:00:00"
std::string own_mark() {
  char host[256] = {}, time[32] = {};
  ::gethostname(host, sizeof(host) - 1);
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  std::strftime(time, sizeof(time), "%F %T", ::localtime_r(&now, &local));
  return "process " + std::to_string(::getpid()) + " on " + host + ", since " + time;
}

std::string mark_in(const std::filesystem::path& path) {
  std::string mark;
  std::getline(std::ifstream(path), mark);
  return mark.empty() ? "another process" : mark;  // one that has not come to write it yet
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& who)
    : file_(::open((folder / kName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  const std::filesystem::path path = folder / kName;
  FEM_CHECK(file_ >= 0, who, ": expected to write into ", folder.string(), ", but ", path.string(),
            " cannot be made: ", std::strerror(errno));
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error == EWOULDBLOCK) ::close(file_);
    FEM_CHECK(error != EWOULDBLOCK, who, ": ", folder.string(), " is in use by ", mark_in(path),
              "; wait for it, or choose another --out");
    std::fprintf(stderr, "%s: %s cannot be locked (%s): see to it that no other process works in it\n", who.c_str(),
                 folder.c_str(), std::strerror(error));
  }
  const std::string mark = own_mark() + "\n";
  // Who it is matters to people alone: a full disk must not keep a run from going on.
  if (::ftruncate(file_, 0) == 0) static_cast<void>(!::pwrite(file_, mark.data(), mark.size(), 0));
}

FolderLock::~FolderLock() { ::close(file_); }

}  // namespace fem
