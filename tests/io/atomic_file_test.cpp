#include "io/atomic_file.h"

#include <sys/resource.h>

#include <csignal>
#include <ostream>
#include <stdexcept>

#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

class AtomicFile : public testing::TemporaryFolder {};

TEST_F(AtomicFile, WritesANewFile) {
  write_atomically(folder / "new", [](std::ostream& out) { out << "content"; });
  EXPECT_EQ(read(folder / "new"), "content");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFile, ReplacesAnOldFile) {
  write(folder / "file", "old and longer");
  write_atomically(folder / "file", [](std::ostream& out) { out << "new"; });
  EXPECT_EQ(read(folder / "file"), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFile, AcceptsAPathWithoutFolder) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  write_atomically("bare", [](std::ostream& out) { out << "content"; });
  std::filesystem::current_path(before);
  EXPECT_EQ(read(folder / "bare"), "content");
}

TEST_F(AtomicFile, IsReadableByOthersAsTheUmaskSays) {
  const mode_t before = ::umask(022);
  write_atomically(folder / "file", [](std::ostream& out) { out << "content"; });
  ::umask(before);
  EXPECT_EQ(std::filesystem::status(folder / "file").permissions(), static_cast<std::filesystem::perms>(0644));
}

TEST_F(AtomicFile, AnExceptionWhileWritingLeavesTheOldFile) {
  write(folder / "file", "old");
  const auto interrupted = [](std::ostream& out) {
    out << "half";
    throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(write_atomically(folder / "file", interrupted), std::runtime_error);
  EXPECT_EQ(read(folder / "file"), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFile, AFailingDiskLeavesTheOldFile) {
  write(folder / "file", "old");
  // A limit on file sizes fails like a full disk: in the middle of a write.
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{64 * 1024, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const auto result = fails_with("cannot write " + (folder / "file").string() + ": File too large", [&] {
    write_atomically(folder / "file", [](std::ostream& out) { out << std::string(1 << 20, 'x'); });
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(result);
  EXPECT_EQ(read(folder / "file"), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFile, AMissingFolderIsNamed) {
  const auto path = folder / "missing" / "file";
  EXPECT_TRUE(fails_with("cannot write " + path.string() + ": No such file or directory",
                         [&] { write_atomically(path, [](std::ostream&) {}); }));
}

TEST_F(AtomicFile, AFolderUnderThatNameIsKept) {
  std::filesystem::create_directories(folder / "taken");
  EXPECT_TRUE(fails_with("cannot replace", [&] { write_atomically(folder / "taken", [](std::ostream&) {}); }));
  EXPECT_EQ(files(), 1);
}

}  // namespace
}  // namespace fem
