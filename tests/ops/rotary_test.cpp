#include "fem/ops/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/error_text.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

constexpr int64_t kFar = int64_t{1} << 40;

using RotaryKernel = KernelTest;
FEM_ON_EVERY_ISA(RotaryKernel);

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

TEST_P(RotaryKernel, MatchesTheDefinitionNearAndFar) {
  for (const auto dialect : {Dialect::kCorrected, Dialect::kReference})
    for (const int64_t start : {int64_t{0}, int64_t{61}, int64_t{1000}, int64_t{1} << 31, kFar}) {
      const at::Tensor x = at::randn({2, 150, 3, 22}), positions = at::arange(start, start + 150);
      const RotaryTable table = rotary_table(rotation_of(positions, 22, 777.0, dialect), at::empty({0}, at::kDouble));
      const at::Tensor exact = x.to(at::kDouble) * table.cosine.unsqueeze(1) +
                               x.to(at::kDouble).unflatten(-1, {-1, 2}).flip(-1).flatten(-2) * table.sine.unsqueeze(1);
      EXPECT_TRUE(close(rotary(x, positions, 777.0, dialect), exact, kFloat32Exact)) << start;
    }
}

// What a position gets depends on the position alone, not on where a call or a row begins.
TEST_P(RotaryKernel, OffsetsAndRowsOfPositionsAgree) {
  for (const int64_t start : {int64_t{0}, int64_t{50}, kFar}) {
    const at::Tensor x = at::randn({2, 130, 2, 4}), positions = at::arange(start, start + 130);
    const at::Tensor all = rotary(x, positions);
    for (const int64_t cut : {1, 64, 77})
      EXPECT_TRUE(at::equal(rotary(x.slice(1, cut), positions.slice(0, cut)), all.slice(1, cut)));
    EXPECT_TRUE(at::equal(rotary(x, positions.expand({2, 130})), all));
    EXPECT_TRUE(at::equal(rotary(x.flip(1), positions.flip(0)), all.flip(1)));
    EXPECT_TRUE(at::equal(rotary(x, positions.to(start < kFar ? at::kInt : at::kLong)), all));
  }
}

// Far positions are as exact as near ones: a product of position and frequency alone would be off by 1e-4 rad there.
TEST(Rotary, KeepsItsAnglesFarOut) {
  at::manual_seed(2);
  const at::Tensor q = at::randn({8}, at::kDouble), k = at::randn({8}, at::kDouble);
  const double near = score(q, k, 5, 2, Dialect::kCorrected).item<double>();
  EXPECT_NEAR(score(q, k, kFar + 5, kFar + 2, Dialect::kCorrected).item<double>(), near, 1e-6);
  const auto narrow = [&](int64_t far) {
    return score(q.to(at::kFloat), k.to(at::kFloat), far + 5, far + 2, Dialect::kCorrected).item<double>();
  };
  EXPECT_NEAR(narrow(kFar), near, 64 * kEps32);
  EXPECT_NEAR(narrow(0), near, 64 * kEps32);
}

TEST(Rotary, ErrorsAreSentences) {
  const at::Tensor x = at::randn({2, 5, 3, 4});
  EXPECT_TRUE(fails_with("expected an even width K", [&] { rotary(x.slice(3, 1), at::arange(5)); }));
  EXPECT_TRUE(fails_with("expected positions of shape [T] or [B, T]", [&] { rotary(x, at::arange(4)); }));
  EXPECT_TRUE(fails_with("expected integer positions", [&] { rotary(x, at::randn({5})); }));
}

}  // namespace
}  // namespace fem::testing
