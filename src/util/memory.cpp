#include "util/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>

namespace fem {
namespace {

namespace fs = std::filesystem;

// The number in a file that holds one; nothing if there is none ("max": no limit).
std::optional<int64_t> number_in_file(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// "MemTotal:   24684100 kB" of a file of such lines, in bytes; the unit is left out where it is bytes.
int64_t entry_of(const fs::path& path, const std::string& name, int64_t unit) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name)) return std::stoll(line.substr(name.size())) * unit;
  return 0;
}

// What one version of control groups calls them.
struct ControlFiles {
  const char* folder;
  const char* limit;
  const char* usage;
  const char* cache;  // in memory.stat: what would be given back
};
constexpr ControlFiles kVersion1{"memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
constexpr ControlFiles kVersion2{"", "memory.max", "memory.current", "inactive_file "};

// A group is limited by those above it, too. A container sees its own group as the uppermost.
void apply_groups(MemoryLimits& limits, const fs::path& groups, fs::path group, const ControlFiles& names) {
  for (group = group.relative_path();; group = group.parent_path()) {
    const fs::path folder = groups / names.folder / group;
    const auto limit = number_in_file(folder / names.limit), usage = number_in_file(folder / names.usage);
    if (limit && usage) {
      const int64_t used = *usage - entry_of(folder / "memory.stat", names.cache, 1);
      limits.total = std::min(limits.total, *limit);
      limits.available = std::min(limits.available, std::max<int64_t>(*limit - used, 0));
    }
    if (group.empty()) return;
  }
}

// Passes every request on and keeps account of what is alive. Lives as long as the process, since a tensor may outlive
// the measurement it was made in. Memory is its own context, as callers of raw_allocate need it.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& only() {
    static auto* const counter = new CountingAllocator(c10::GetCPUAllocator());
    return *counter;
  }

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = base_->allocate(bytes);
    const c10::Device device = memory.device();
    void* const data = memory.release_context();
    if (data) add(data, static_cast<int64_t>(bytes));
    return {data, data, &release, device};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  c10::Allocator* base() const { return base_; }
  void restart() {
    const std::lock_guard lock(mutex_);
    blocks_.clear();  // what an earlier measurement left behind is not counted in this one
    alive_ = {};
  }
  Allocated allocated() const {
    const std::lock_guard lock(mutex_);
    return alive_;
  }

 private:
  explicit CountingAllocator(c10::Allocator* base) : base_(base) {}

  static void release(void* data) {
    only().remove(data);
    only().base_->raw_deleter()(data);
  }

  void add(void* data, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[data] = bytes;
    ++alive_.allocations;
    alive_.kept_bytes += bytes;
    alive_.peak_bytes = std::max(alive_.peak_bytes, alive_.kept_bytes);
  }

  void remove(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;
    alive_.kept_bytes -= found->second;
    blocks_.erase(found);
  }

  c10::Allocator* const base_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, int64_t> blocks_;
  Allocated alive_ = {};
};

}  // namespace

MemoryLimits memory_limits(const fs::path& root) {
  const fs::path memory = root / "proc" / "meminfo", groups = root / "sys" / "fs" / "cgroup";
  const auto kilobytes = [&](const char* name) { return entry_of(memory, name, 1024); };
  MemoryLimits limits{kilobytes("MemTotal:") + kilobytes("SwapTotal:"), kilobytes("MemAvailable:")};
  if (limits.total == 0) limits.total = limits.available = std::numeric_limits<int64_t>::max();  // nobody knows
  std::ifstream file(root / "proc" / "self" / "cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/group", "0::/group"
    const size_t controllers = line.find(':') + 1, group = line.find(':', controllers) + 1;
    const std::string name = line.substr(controllers, group - controllers - 1);
    if (name == "memory") apply_groups(limits, groups, line.substr(group), kVersion1);
    if (name.empty()) apply_groups(limits, groups, line.substr(group), kVersion2);
  }
  return limits;
}

Allocated allocated_by(const std::function<void()>& work) {
  constexpr uint8_t kPriority = 100;  // above whatever is installed, the original goes back at the same level
  CountingAllocator& counter = CountingAllocator::only();
  counter.restart();
  c10::SetCPUAllocator(&counter, kPriority);
  struct Restore {
    ~Restore() { c10::SetCPUAllocator(CountingAllocator::only().base(), kPriority); }
  } restore;
  work();
  return counter.allocated();
}

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return true;
  const auto* const raised = dynamic_cast<const c10::Error*>(&error);
  return raised && std::string(raised->what_without_backtrace()).find("DefaultCPUAllocator") != std::string::npos;
}

}  // namespace fem
