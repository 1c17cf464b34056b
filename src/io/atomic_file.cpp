#include "io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

void require(bool done, const fs::path& path, const char* step) {
  const int error = errno;
  FEM_CHECK(done, "cannot ", step, " ", path.string(), ": ", std::strerror(error ? error : EIO),
            " (the file under that name was left as it was)");
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (opened()) ::close(fd_);
  }
  bool opened() const { return fd_ >= 0; }
  bool sync() const { return ::fsync(fd_) == 0; }

 private:
  int fd_;
};

// A new file beside path, removed again unless it took path's name.
class Temporary {
 public:
  explicit Temporary(const fs::path& path) {
    // A killed process of the same id, as in a container, may have left one.
    do {
      name = next_name(path);
      descriptor_ = std::make_unique<Descriptor>(name, O_WRONLY | O_CREAT | O_EXCL);
    } while (!descriptor_->opened() && errno == EEXIST);
    require(descriptor_->opened(), path, "write");
  }
  ~Temporary() {
    std::error_code ignored;
    if (!renamed_ && descriptor_->opened()) fs::remove(name, ignored);
  }
  bool sync() const { return descriptor_->sync(); }
  bool rename_to(const fs::path& path) { return renamed_ = ::rename(name.c_str(), path.c_str()) == 0; }

  fs::path name;

 private:
  // mkstemp would make the file unreadable for others. The name can be foreseen, but O_EXCL makes a new file or none.
  static fs::path next_name(const fs::path& path) {
    static std::atomic<uint64_t> count{0};
    return path.string() + "." + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".tmp";
  }

  std::unique_ptr<const Descriptor> descriptor_;
  bool renamed_ = false;
};

// A new name is safe only once its folder is.
void sync_folder_of(const fs::path& path) {
  const Descriptor folder(path.has_parent_path() ? path.parent_path() : fs::path("."), O_RDONLY | O_DIRECTORY);
  require(folder.opened() && folder.sync(), path, "sync the folder of");
}

}  // namespace

void write_atomically(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  Temporary temporary(path);
  {
    std::ofstream stream(temporary.name, std::ios::binary);
    errno = 0;
    write(stream);
    stream.close();
    require(!stream.fail(), path, "write");
  }
  require(temporary.sync(), path, "write");
  require(temporary.rename_to(path), path, "replace");
  sync_folder_of(path);
}

void rename_folder(const fs::path& from, const fs::path& to) {
  sync_folder_of(from / "any");  // the names of its files
  require(::rename(from.c_str(), to.c_str()) == 0, to, "create");
  sync_folder_of(to);
}

}  // namespace fem
