#include "fem/ops/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

at::Tensor score(const at::Tensor& q, const at::Tensor& k, int64_t at_q, int64_t at_k, Dialect dialect) {
  const auto turned = [&](const at::Tensor& x, int64_t position) {
    return rotary(x.view({1, 1, 1, -1}), at::tensor({position}), 10000.0, dialect).view(-1);
  };
  return turned(q, at_q).dot(turned(k, at_k));
}

TEST(Rotary, TurnsEachPairByItsAngle) {
  const at::Tensor x = at::randn({1, 1, 1, 6}, at::kDouble);
  const at::Tensor y = rotary(x, at::tensor({7}), 100.0);
  for (int64_t m = 0; m < 3; ++m) {
    const double angle = 7 * std::pow(100.0, -2.0 * static_cast<double>(m) / 6);
    const double a = x[0][0][0][2 * m].item<double>(), b = x[0][0][0][2 * m + 1].item<double>();
    EXPECT_NEAR(y[0][0][0][2 * m].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-12);
    EXPECT_NEAR(y[0][0][0][2 * m + 1].item<double>(), a * std::sin(angle) + b * std::cos(angle), 1e-12);
  }
}

TEST(Rotary, DependsOnDistancesAloneButInTheReferenceDialect) {
  at::manual_seed(1);
  const at::Tensor q = at::randn({8}, at::kDouble), k = at::randn({8}, at::kDouble);
  const auto gap = [&](Dialect dialect) {
    return std::abs((score(q, k, 5, 2, dialect) - score(q, k, 1005, 1002, dialect)).item<double>());
  };
  EXPECT_LT(gap(Dialect::kCorrected), 1e-10);
  EXPECT_LT(gap(Dialect::kPaper), 1e-10);
  EXPECT_GT(gap(Dialect::kReference), 1e-3);
}

TEST(Rotary, TablesThatAreRememberedEqualThoseOfTheirPositions) {
  for (const auto dialect : {Dialect::kCorrected, Dialect::kReference})
    for (const auto& [start, length] : {std::pair<int64_t, int64_t>{0, 5}, {3, 1}, {2, 40}, {100, 7}, {0, 0}}) {
      const at::Tensor like = at::empty({0});
      const RotaryTable remembered = rotary_table(start, length, 12, like, 777.0, dialect);
      const RotaryTable expected = rotary_table(at::arange(start, start + length), 12, like, 777.0, dialect);
      EXPECT_TRUE(at::equal(remembered.cosine, expected.cosine)) << start;
      EXPECT_TRUE(at::equal(remembered.sine, expected.sine)) << start;
    }
  EXPECT_EQ(rotary_table(1, 2, 4, at::empty({0}, at::kDouble)).sine.scalar_type(), at::kDouble);
}

TEST(Rotary, OffsetsAndRowsOfPositionsAgree) {
  const at::Tensor x = at::randn({2, 9, 2, 4});
  const at::Tensor all = rotary(x, at::arange(9));
  EXPECT_TRUE(at::equal(rotary(x.slice(1, 4), at::arange(4, 9)), all.slice(1, 4)));
  EXPECT_TRUE(at::equal(rotary(x, at::arange(9).expand({2, 9})), all));
}

TEST(Rotary, KeepsItsAnglesFarOut) {
  const int64_t far = 1000000;
  const at::Tensor x = at::ones({1, 1, 1, 2});
  const at::Tensor y = rotary(x, at::tensor({far}));
  EXPECT_NEAR(y[0][0][0][0].item<double>(), std::cos(1e6) - std::sin(1e6), 1e-6);
}

TEST(Rotary, ErrorsAreSentences) {
  const at::Tensor x = at::randn({2, 5, 3, 4});
  EXPECT_TRUE(fails_with("expected an even width K", [&] { rotary(x.slice(3, 1), at::arange(5)); }));
  EXPECT_TRUE(fails_with("expected cosine of shape [T, K]", [&] { rotary(x, at::arange(4)); }));
  EXPECT_TRUE(fails_with("expected integer positions", [&] { rotary(x, at::randn({5})); }));
}

}  // namespace
}  // namespace fem::testing
