#include "util/table.h"

#include <gtest/gtest.h>

#include <limits>

namespace fem {
namespace {

TEST(Table, AlignsTheFirstColumnLeftAndTheOthersRight) {
  Table table({"mixer", "accuracy"});
  table.add({"fem", "98.9 %"});
  table.add({"softmax", "6.5 %"});
  EXPECT_EQ(table.str(),
            "mixer    accuracy\n"
            "-------  --------\n"
            "fem        98.9 %\n"
            "softmax     6.5 %\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({"a", "b"});
  table.add({"x", "1 ± 2"});
  table.add({"y", "12345"});
  EXPECT_EQ(table.str(), "a      b\n-  -----\nx  1 ± 2\ny  12345\n");
}

TEST(Table, NumbersReadWell) {
  EXPECT_EQ(fixed(0.98765, 2), "0.99");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(-1234), "-1,234");
  EXPECT_EQ(grouped(-123), "-123");
}

}  // namespace
}  // namespace fem
