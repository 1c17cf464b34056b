#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "fem/ops/softmax_read.h"
#include "support/error_text.h"

namespace fem::testing {
namespace {

const at::Tensor kQuery = at::randn({2, 5, 3, 4}), kValue = at::randn({2, 5, 3, 6}), kBeta = at::ones({3, 6});

using Call = std::function<void()>;

Call error(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
           const std::optional<at::Tensor>& beta, const SoftmaxReadOptions& options = {}) {
  return [=] { softmax_read(query, key, value, beta, options); };
}
void expect(const Call& call, const std::string& text) { EXPECT_TRUE(fails_with(text, call)); }

TEST(SoftmaxReadErrors, ShapesThatDoNotFitAreNamed) {
  expect(error(kQuery[0], kQuery, kValue, kBeta), "expected query of shape [B, T, H, K], got [5, 3, 4]");
  expect(error(kQuery, at::randn({2, 5, 3, 5}), kValue, kBeta),
         "expected key of shape [B=2, T, H=3, K=4] to match query, got [2, 5, 3, 5]");
  expect(error(kQuery, kQuery, at::randn({2, 4, 3, 6}), kBeta),
         "expected value of shape [B=2, T=5, H=3, V] to match key, got [2, 4, 3, 6]");
  expect(error(kQuery, kQuery, kValue, at::ones({6})), "expected beta of shape [H=3, V=6], got [6]");
  expect(error(kQuery.slice(3, 0, 0), kQuery.slice(3, 0, 0), kValue, kBeta), "key width K of at least 1");
}

TEST(SoftmaxReadErrors, DtypesAndDevicesThatDoNotFitAreNamed) {
  expect(error(kQuery.to(at::kHalf), kQuery.to(at::kHalf), kValue.to(at::kHalf), kBeta.to(at::kHalf)),
         "expected float32, bfloat16 or float64, got Half");
  expect(error(kQuery, kQuery.to(at::kDouble), kValue, kBeta), "expected query, key and value of one dtype");
  expect(error(kQuery, kQuery, kValue, kBeta.to(at::kDouble)), "expected beta as Float, got Double");
  expect(error(kQuery, kQuery.to(at::kMeta), kValue, kBeta),
         "softmax_read: expected key on cpu like query, got it on meta");
}

TEST(SoftmaxReadErrors, MasksWindowsAndBordersThatDoNotFitAreNamed) {
  expect(error(kQuery, kQuery, kValue, kBeta, {.key_mask = at::ones({2, 4}, at::kBool)}),
         "expected key_mask as Bool [2, 5] (true = a real token), got Bool [2, 4]");
  expect(error(kQuery, kQuery, kValue, kBeta, {.key_mask = at::ones({2, 5})}), "got Float [2, 5]");
  expect(error(kQuery, kQuery, kValue, kBeta, {.window = 0}), "window of at least 1 token, got 0");
  const auto packed = [&](std::vector<int64_t> borders, int64_t rows = 1) {
    const at::Tensor q = kQuery.slice(0, 0, rows), v = kValue.slice(0, 0, rows);
    return error(q, q, v, kBeta, {.cu_seqlens = at::tensor(borders, at::kLong)});
  };
  expect(packed({0, 3, 2, 5}), "cu_seqlens must not decrease, got 3 before 2 at index 1");
  expect(packed({1, 5}), "cu_seqlens must run from 0 to T=5, got 1 ... 5");
  expect(packed({0, 4}), "cu_seqlens must run from 0 to T=5, got 0 ... 4");
  expect(packed({0}), "cu_seqlens as int32 or int64 [n + 1]");
  expect(packed({0, 5}, 2), "packed in one row");
}

TEST(SoftmaxReadErrors, ValuesBeyondTheRangeAreNamed) {
  const at::Tensor value = kValue.clone();
  value[1][3][2][5] = 52.5;
  expect(error(kQuery, kQuery, value, kBeta),
         "|beta v| reaches 52.5 but float32 and bfloat16 allow 40: clip the value");
  expect(error(kQuery.slice(1, 0, 1), kQuery, value, kBeta, {.causal = false}), "|beta v| reaches 52.5");
  EXPECT_NO_THROW(softmax_read(kQuery, kQuery, clip_value(value, kBeta, 40), kBeta));
}

}  // namespace
}  // namespace fem::testing
