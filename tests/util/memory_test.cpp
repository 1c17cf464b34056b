#include "util/memory.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <limits>
#include <new>

#include "io/temporary_folder.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

class MemoryOf : public testing::TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    add("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\nSwapTotal: 50 kB\n");
  }
  void add(const fs::path& path, const std::string& content) {
    fs::create_directories((folder / path).parent_path());
    write(folder / path, content);
  }
  void expect(int64_t total, int64_t available) {
    const MemoryLimits limits = memory_limits(folder);
    EXPECT_EQ(limits.total, total);
    EXPECT_EQ(limits.available, available);
  }
};

TEST_F(MemoryOf, AMachine) { expect(1050 * 1024, 600 * 1024); }

TEST_F(MemoryOf, AGroupOfVersion2AndThoseAboveIt) {
  add("proc/self/cgroup", "0::/slice/job\n");
  add("sys/fs/cgroup/slice/memory.max", "500000\n");
  add("sys/fs/cgroup/slice/memory.current", "200000\n");
  add("sys/fs/cgroup/slice/memory.stat", "anon 1\ninactive_file 50000\n");
  add("sys/fs/cgroup/slice/job/memory.max", "max\n");
  add("sys/fs/cgroup/slice/job/memory.current", "100\n");
  expect(500000, 500000 - 150000);
  add("sys/fs/cgroup/slice/job/memory.max", "300000\n");
  expect(300000, 299900);
}

TEST_F(MemoryOf, AGroupOfVersion1ThatAContainerSeesAsTheUppermost) {
  add("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/0123\n0::/\n");
  add("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
  add("sys/fs/cgroup/memory/memory.usage_in_bytes", "390000\n");
  add("sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 1000\n");
  expect(400000, 11000);
  add("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  expect(1050 * 1024, 600 * 1024);
}

TEST_F(MemoryOf, WhereNothingIsKnownNothingIsLimited) {
  fs::remove_all(folder / "proc");
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  expect(kAny, kAny);
}

TEST(Memory, OfThisProcessIsKnown) {
  const MemoryLimits limits = memory_limits();
  EXPECT_GT(limits.available, 1 << 20);
  EXPECT_GE(limits.total, limits.available);
  EXPECT_LT(limits.total, int64_t{1} << 50);
}

TEST(Memory, OfTensorsIsCountedHoweverItIsAskedFor) {
  at::Tensor kept;
  const Allocated allocated = allocated_by([&] {
    c10::Allocator* const allocator = c10::GetCPUAllocator();
    allocator->raw_deallocate(allocator->raw_allocate(4096));
    kept = at::empty({1024}, at::kByte);
  });
  EXPECT_EQ(allocated.peak_bytes, 4096);
  EXPECT_EQ(allocated.kept_bytes, 1024);
  EXPECT_EQ(allocated.allocations, 2);
}

TEST(Memory, ThatCannotBeHadIsRecognised) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("else")));
  try {
    at::empty({int64_t{1} << 60}, at::kByte);
    FAIL() << "an exabyte was given";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_out_of_memory(error)) << error.what();
  }
}

}  // namespace
}  // namespace fem
