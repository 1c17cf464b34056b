#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "fem/ops/linear_read.h"
#include "support/error_text.h"

namespace fem::testing {
namespace {

const at::Tensor kQuery = at::rand({2, 5, 3, 4}), kValue = at::randn({2, 5, 3, 6}), kBeta = at::ones({3, 6});

using Call = std::function<void()>;

Call error(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
           const std::optional<at::Tensor>& beta, const std::optional<at::Tensor>& log_decay = std::nullopt,
           const RecurrentReadOptions& options = {}) {
  return [=] { linear_read(query, key, value, beta, log_decay, options); };
}
void expect(const Call& call, const std::string& text) { EXPECT_TRUE(fails_with(text, call)); }

TEST(LinearReadErrors, ShapesThatDoNotFitAreNamed) {
  expect(error(kQuery, kQuery, kValue[0], kBeta), "linear_read: expected value of shape [B, T, H, V], got [5, 3, 6]");
  expect(error(kQuery.slice(1, 1), kQuery, kValue, kBeta),
         "linear_read: expected query of shape [2, 5, 3, *] to match value [2, 5, 3, 6], got [2, 4, 3, 4]");
  expect(error(kQuery, at::rand({2, 5, 3, 5}), kValue, kBeta), "expected key of shape [2, 5, 3, 4] to match value");
  expect(error(kQuery.slice(3, 0, 0), kQuery.slice(3, 0, 0), kValue, kBeta), "key width K of at least 1");
  expect(error(kQuery, kQuery, kValue, at::ones({6})), "expected beta of shape [3, 6] to match value");
  expect(error(kQuery, kQuery, kValue, kBeta, at::zeros({2, 5})), "expected log_decay of shape [2, 5, 3]");
}

TEST(LinearReadErrors, DtypesAndDevicesThatDoNotFitAreNamed) {
  expect(error(kQuery, kQuery, kValue.to(at::kHalf), kBeta), "expected float32, bfloat16 or float64, got Half");
  expect(error(kQuery, kQuery.to(at::kDouble), kValue, kBeta),
         "linear_read: expected key as Float like value, got Double");
  expect(error(kQuery, kQuery, kValue, kBeta, at::zeros({2, 5, 3}, at::kMeta)),
         "linear_read: expected log_decay on cpu like query, got it on meta");
}

TEST(LinearReadErrors, MasksBordersAndStatesThatDoNotFitAreNamed) {
  expect(error(kQuery, kQuery, kValue, kBeta, {}, {.key_mask = at::ones({2, 4}, at::kBool)}),
         "linear_read: expected key_mask as Bool [2, 5] (true = a real token), got Bool [2, 4]");
  expect(error(kQuery, kQuery, kValue, kBeta, {}, {.cu_seqlens = at::tensor({0, 5})}), "packed in one row");
  const at::Tensor q = kQuery.slice(0, 0, 1), v = kValue.slice(0, 0, 1);
  expect(error(q, q, v, kBeta, {}, {.cu_seqlens = at::tensor({0, 4})}), "cu_seqlens must run from 0 to T=5");
  expect(error(kQuery, kQuery, kValue, kBeta, {}, {.initial = at::zeros({2, 3, 4, 7})}),
         "linear_read: expected initial as Float [2, 3, 4, 13] (the state of an earlier call), got Float [2, 3, 4, 7]");
  expect(error(kQuery, kQuery, kValue, kBeta, {}, {.initial = at::zeros({2, 3, 4, 13}, at::kDouble)}), "got Double");
  expect(error(kQuery, kQuery, kValue, kBeta, {}, {.causal = false, .initial = at::zeros({2, 3, 4, 13})}),
         "an initial state needs causal=true");
}

TEST(LinearReadErrors, ValuesBeyondTheRangeAreNamed) {
  for (const int64_t tokens : {3, 5}) {  // a few tokens have a kernel of their own
    const at::Tensor q = kQuery.slice(1, 0, tokens), value = kValue.slice(1, 0, tokens).clone();
    value[1][2][2][5] = 52.5;
    expect(error(q, q, value, kBeta), "|beta v| reaches 52.5 but float32 and bfloat16 allow 40: clip the value");
    value[1][2][0][0] = NAN;
    expect(error(q, q, value, kBeta), "|beta v| reaches 52.5");
    at::Tensor mask = at::ones({2, tokens}, at::kBool);
    mask[1][2] = false;
    EXPECT_NO_THROW(linear_read(q, q, value, kBeta, std::nullopt, {.key_mask = mask}));
    EXPECT_NO_THROW(linear_read(q, q, clip_value(value, kBeta, 40), kBeta));
    EXPECT_NO_THROW(linear_read(q, q, value, std::nullopt));
  }
}

}  // namespace
}  // namespace fem::testing
