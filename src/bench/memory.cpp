#include "bench/memory.h"

#include <c10/core/CPUAllocator.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

namespace fem::bench {
namespace {

// Passes every request on and keeps account of what is alive. Lives as long as the process, since a tensor may outlive
// the measurement it was made in.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* base) : base_(base) {}

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = base_->allocate(bytes);
    void* data = memory.get();
    const c10::Device device = memory.device();
    add(static_cast<int64_t>(bytes));
    return {data, new Block{std::move(memory), this, static_cast<int64_t>(bytes), measurement_}, &release, device};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  c10::Allocator* base() const { return base_; }
  void restart() {
    ++measurement_;
    alive_ = peak_ = allocations_ = 0;
  }
  int64_t alive() const { return alive_; }
  int64_t peak() const { return peak_; }
  int64_t allocations() const { return allocations_; }

 private:
  struct Block {
    c10::DataPtr memory;
    CountingAllocator* owner;
    int64_t bytes, measurement;
  };

  static void release(void* block) {
    auto* const b = static_cast<Block*>(block);
    // What an earlier measurement left behind was not counted in this one.
    if (b->measurement == b->owner->measurement_) b->owner->alive_ -= b->bytes;
    delete b;
  }

  void add(int64_t bytes) {
    ++allocations_;
    const int64_t now = alive_ += bytes;
    int64_t highest = peak_;
    while (now > highest && !peak_.compare_exchange_weak(highest, now)) {
    }
  }

  c10::Allocator* const base_;
  std::atomic<int64_t> alive_ = 0, peak_ = 0, allocations_ = 0, measurement_ = 0;
};

}  // namespace

Memory memory_of(const Work& work) {
  constexpr uint8_t kPriority = 100;  // above whatever is installed, the original goes back at the same level
  static auto* const counter = new CountingAllocator(c10::GetCPUAllocator());
  counter->restart();
  c10::SetCPUAllocator(counter, kPriority);
  struct Restore {
    ~Restore() { c10::SetCPUAllocator(counter->base(), kPriority); }
  } restore;
  work();
  return {counter->peak(), counter->alive(), counter->allocations()};
}

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t bytes_of(const MixerState& state) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : state.to_tensors()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace fem::bench
