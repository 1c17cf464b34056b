#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "bench/benchmarks.h"
#include "bench/memory.h"
#include "bench/paired.h"
#include "bench/shapes.h"

namespace fem::bench {
namespace {

TEST(Bench, BothSidesRunInTurnAndEquallyOften) {
  std::string order;
  const PairedTimes times = time_in_turn([&] { order += 'a'; }, [&] { order += 'b'; }, 3);
  EXPECT_EQ(order, "ababababab");
  EXPECT_EQ(times.repeats, 3);
}

TEST(Bench, PeakCountsWhatIsAliveAtOneTime) {
  constexpr int64_t kMebibyte = 1 << 20;
  const auto make = [] { return at::empty({kMebibyte}, at::kByte); };
  const at::Tensor before = make();
  const auto together = [&] { const at::Tensor first = make(), second = make(); };
  const auto one_by_one = [&] {
    for (int i = 0; i < 5; ++i) make();
  };
  EXPECT_EQ(memory_of(together).peak_bytes, 2 * kMebibyte);
  EXPECT_EQ(memory_of(one_by_one).peak_bytes, kMebibyte);
  EXPECT_EQ(memory_of([] {}).peak_bytes, 0);
  EXPECT_EQ(memory_of(one_by_one).allocations, 5);
}

TEST(Bench, TensorMayOutliveItsMeasurement) {
  at::Tensor kept;
  EXPECT_EQ(memory_of([&] { kept = at::zeros({256}); }).peak_bytes, 1024);
  EXPECT_EQ(kept.sum().item<float>(), 0);
  const auto free_then_allocate = [&] {
    kept.reset();
    at::zeros({256});
  };
  EXPECT_EQ(memory_of(free_then_allocate).peak_bytes, 1024);
}

TEST(Bench, ShapesAreThePublishedOnes) {
  EXPECT_EQ(shape_named("S4").length, 8192);
  EXPECT_EQ(shapes_named({"S1", "S2"}).size(), 2U);
  EXPECT_THROW(shape_named("S9"), c10::Error);
}

TEST(Bench, DecodingSaysWhatItTakes) {
  const auto gigabytes = [](const char* shape, PriorType prior) {
    return static_cast<double>(decode_bytes(shape_named(shape), {prior})) / 1e9;
  };
  // As measured, less what the process has before: 0.7, 2.67 and 1.51 GB.
  EXPECT_NEAR(gigabytes("D1", PriorType::kSoftmax), 0.7 - 0.35, 0.1);
  EXPECT_NEAR(gigabytes("D8", PriorType::kSoftmax), 2.67 - 0.35, 0.2);
  EXPECT_NEAR(gigabytes("D8", PriorType::kGla), 1.51 - 0.35, 0.2);
}

}  // namespace
}  // namespace fem::bench
