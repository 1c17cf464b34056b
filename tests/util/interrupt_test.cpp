#include "util/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace fem {
namespace {

TEST(Interrupt, FirstSignalOnlySetsTheFlag) {
  const InterruptGuard guard;
  EXPECT_FALSE(interrupted());
  EXPECT_NO_THROW(throw_if_interrupted());
  std::raise(SIGINT);
  EXPECT_TRUE(interrupted());
  EXPECT_EQ(interrupt_signal(), SIGINT);
  EXPECT_THROW(throw_if_interrupted(), Interrupted);
}

TEST(Interrupt, NewGuardStartsUnsignalled) {
  {
    const InterruptGuard guard;
    std::raise(SIGTERM);
    EXPECT_EQ(interrupt_signal(), SIGTERM);
  }
  EXPECT_FALSE(interrupted());
  EXPECT_EQ(interrupt_signal(), SIGTERM);
  const InterruptGuard guard;
  EXPECT_FALSE(interrupted());
}

TEST(Interrupt, AGuardInsideAnotherForgetsNoSignal) {
  const InterruptGuard outer;
  std::raise(SIGINT);
  {
    const InterruptGuard inner;
    EXPECT_EQ(interrupt_signal(), SIGINT);
  }
  EXPECT_EQ(interrupt_signal(), SIGINT);
}

TEST(Interrupt, TheLastGuardRestoresTheHandlerThatWasThereBeforeTheFirst) {
  static int reached = 0;
  const auto before = std::signal(SIGINT, [](int) { ++reached; });
  {
    const InterruptGuard outer;
    {
      const InterruptGuard inner;
    }
    std::raise(SIGINT);
    EXPECT_EQ(reached, 0);
    EXPECT_EQ(interrupt_signal(), SIGINT);
  }
  std::raise(SIGINT);
  EXPECT_EQ(reached, 1);
  std::signal(SIGINT, before);
}

TEST(Interrupt, ASignalOfAnotherProcessCountsAsOnesOwn) {
  const InterruptGuard guard;
  take_interrupt(SIGTERM);
  EXPECT_EQ(interrupt_signal(), SIGTERM);
  take_interrupt(SIGINT);
  EXPECT_EQ(interrupt_signal(), SIGTERM);
}

TEST(InterruptDeathTest, SecondSignalSaysWhatIsLostAndEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto interrupted_twice = [] {
    const InterruptGuard guard;
    guard.costs("steps 101 to 120 are lost");
    {
      const InterruptGuard inner;
      inner.costs("a validation is lost");
    }
    std::raise(SIGINT);
    std::raise(SIGINT);
  };
  EXPECT_EXIT(interrupted_twice(), ::testing::KilledBySignal(SIGINT),
              "^\nfem: stopping; a second signal stops at once: steps 101 to 120 are lost\n"
              "\nfem: stopped at once: steps 101 to 120 are lost\n$");
}

TEST(InterruptDeathTest, SilentWhereNothingIsLost) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto interrupted_twice = [] {
    const InterruptGuard guard;
    std::raise(SIGTERM);
    std::raise(SIGINT);
  };
  EXPECT_EXIT(interrupted_twice(), ::testing::KilledBySignal(SIGINT), "^$");
}

TEST(InterruptDeathTest, AnInterruptedProcessEndsByItsSignal) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto stopped = [] {
    {
      const InterruptGuard guard;
      std::raise(SIGTERM);
    }
    end_by_signal();
  };
  EXPECT_EXIT(stopped(), ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace fem
