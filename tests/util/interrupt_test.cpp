#include "util/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace fem {
namespace {

TEST(Interrupt, FirstSignalOnlySetsTheFlag) {
  const InterruptGuard guard;
  EXPECT_FALSE(interrupted());
  std::raise(SIGINT);
  EXPECT_TRUE(interrupted());
  EXPECT_EQ(interrupt_signal(), SIGINT);
}

TEST(Interrupt, NewGuardStartsUnsignalled) {
  {
    const InterruptGuard guard;
    std::raise(SIGTERM);
    EXPECT_EQ(interrupt_signal(), SIGTERM);
  }
  const InterruptGuard guard;
  EXPECT_FALSE(interrupted());
}

TEST(InterruptDeathTest, SecondSignalEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace fem
