// Copies of a state in different threads. The same tests run under ThreadSanitizer (tests/CMakeLists.txt), which needs
// nothing but src/mixer/state.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "fem/state.h"

namespace fem {
namespace {

constexpr int kCopies = 4;

// Calls body(copy) for every copy in a thread of its own, all at once.
void in_threads(const std::function<void(int)>& body) {
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kCopies; ++i)
    threads.emplace_back([&, i] {
      for (++ready; ready < kCopies;) std::this_thread::yield();
      body(i);
    });
  for (std::thread& thread : threads) thread.join();
}

at::Tensor row_of(int64_t number) { return at::full({1, 1, 8}, number, at::kLong); }

// Five rows, with room for more.
TokenCache five_rows() {
  TokenCache cache;
  for (int64_t i = 0; i < 5; ++i) cache.append(row_of(i));
  return cache;
}

std::vector<int64_t> numbers_in(const TokenCache& cache) {
  const at::Tensor first = cache.rows().select(2, 0).contiguous();
  EXPECT_TRUE(cache.rows().eq(first.unsqueeze(-1)).all().item<bool>()) << "a row of two threads";
  return {first.const_data_ptr<int64_t>(), first.const_data_ptr<int64_t>() + first.numel()};
}

TEST(SharedState, CopiesContinuedByThreadsKeepApart) {
  for (int round = 0; round < 300; ++round) {
    const TokenCache cache = five_rows();
    std::vector<TokenCache> copies(kCopies, cache);
    in_threads([&](int i) {
      for (int64_t row = 0; row < 3; ++row) copies[i].append(row_of(100 * (i + 1) + row));
    });
    EXPECT_EQ(numbers_in(cache), (std::vector<int64_t>{0, 1, 2, 3, 4}));
    for (int64_t i = 0; i < kCopies; ++i) {
      const int64_t own = 100 * (i + 1);
      ASSERT_EQ(numbers_in(copies[i]), (std::vector<int64_t>{0, 1, 2, 3, 4, own, own + 1, own + 2})) << round;
    }
  }
}

// Speculative decoding in several threads: each goes on from the same snapshot and comes back to it.
TEST(SharedState, SnapshotsRolledBackByThreadsKeepApart) {
  for (int round = 0; round < 100; ++round) {
    MixerState state;
    state.caches["key"] = five_rows();
    in_threads([&, snapshot = state](int i) {
      MixerState own = snapshot;
      for (int64_t attempt = 0; attempt < 3; ++attempt) {
        own.caches["key"].append(row_of(100 * (i + 1) + attempt));
        EXPECT_EQ(numbers_in(own.caches["key"]), (std::vector<int64_t>{0, 1, 2, 3, 4, 100 * (i + 1) + attempt}));
        own.rollback(snapshot);
      }
    });
    EXPECT_EQ(numbers_in(state.caches["key"]), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  }
}

}  // namespace
}  // namespace fem
