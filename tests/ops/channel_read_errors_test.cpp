#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "fem/ops/channel_read.h"
#include "support/error_text.h"

namespace fem::testing {
namespace {

const at::Tensor kValue = at::randn({2, 5, 3, 4}), kBeta = at::ones({3, 4}), kState = at::ones({2, 4, 3, 4});

using Call = std::function<void()>;

Call error(const at::Tensor& value, const std::optional<at::Tensor>& beta, const std::optional<at::Tensor>& log_weight,
           const std::optional<at::Tensor>& log_decay, const RecurrentReadOptions& options = {}) {
  return [=] { channel_read(value, beta, log_weight, log_decay, options); };
}
void expect(const Call& call, const std::string& text) { EXPECT_TRUE(fails_with(text, call)); }

TEST(ChannelReadErrors, ShapesThatDoNotFitAreNamed) {
  expect(error(kValue[0], kBeta, kValue, {}), "channel_read: expected value of shape [B, T, H, V], got [5, 3, 4]");
  expect(error(kValue, at::ones({4}), kValue, {}),
         "expected beta of shape [3, 4] to match value [2, 5, 3, 4], got [4]");
  expect(error(kValue, kBeta, kValue.slice(1, 1), {}),
         "expected log_weight of shape [2, 5, 3, 4] to match value [2, 5, 3, 4], got [2, 4, 3, 4]");
  expect(error(kValue, kBeta, {}, kValue.select(3, 0)), "expected log_decay of shape [2, 5, 3, 4]");
  expect(error(kValue, kBeta, {}, {}), "expected log_weight, log_decay or both, got neither");
}

TEST(ChannelReadErrors, DtypesAndDevicesThatDoNotFitAreNamed) {
  const at::Tensor half = kValue.to(at::kHalf);
  expect(error(half, kBeta.to(at::kHalf), half, {}), "expected float32, bfloat16 or float64, got Half");
  expect(error(kValue, kBeta, kValue.to(at::kDouble), {}),
         "channel_read: expected log_weight as Float like value, got Double");
  expect(error(kValue, kBeta, {}, kValue.to(at::kMeta)),
         "channel_read: expected log_decay on cpu like value, got it on meta");
}

TEST(ChannelReadErrors, StatesThatDoNotFitAreNamed) {
  const auto with = [](const at::Tensor& state, bool causal = true) {
    return error(kValue, kBeta, kValue, {}, {.causal = causal, .initial = state});
  };
  expect(with(kState.slice(1, 1)),
         "channel_read: expected initial as Float [2, 4, 3, 4] (the state of an earlier call), got Float [2, 3, 3, 4]");
  expect(with(kState.slice(0, 1)), "got Float [1, 4, 3, 4]");
  expect(with(kState.to(at::kDouble)), "got Double [2, 4, 3, 4]");
  expect(error(kValue, std::nullopt, kValue, {}, {.initial = kState}),
         "channel_read: expected initial as Float [2, 3, 3, 4] (the state of an earlier call), got Float [2, 4, 3, 4]");
  expect(with(kState, false), "channel_read: an initial state needs causal=true");
}

TEST(ChannelReadErrors, MasksAndBordersThatDoNotFitAreNamed) {
  expect(error(kValue, kBeta, kValue, {}, {.key_mask = at::ones({2, 4}, at::kBool)}),
         "channel_read: expected key_mask as Bool [2, 5] (true = a real token), got Bool [2, 4]");
  const auto packed = [](std::vector<int64_t> borders, int64_t rows = 1) {
    const at::Tensor value = kValue.slice(0, 0, rows);
    return error(value, kBeta, value, {}, {.cu_seqlens = at::tensor(borders, at::kLong)});
  };
  expect(packed({0, 3, 2, 5}), "channel_read: cu_seqlens must not decrease, got 3 before 2 at index 1");
  expect(packed({0, 4}), "cu_seqlens must run from 0 to T=5, got 0 ... 4");
  expect(packed({0, 5}, 2), "packed in one row");
}

TEST(ChannelReadErrors, ValuesBeyondTheRangeAreNamed) {
  const at::Tensor value = kValue.clone(), mask = at::ones({2, 5}, at::kBool);
  value[1][3][2][3] = -52.5;
  expect(error(value, kBeta, kValue, {}),
         "channel_read: |beta v| reaches 52.5 but float32 and bfloat16 allow 40: clip the value");
  expect(error(value, kBeta, {}, -kValue.abs()), "|beta v| reaches 52.5");
  mask[1][3] = false;
  EXPECT_NO_THROW(error(value, kBeta, kValue, {}, {.key_mask = mask})());
  EXPECT_NO_THROW(error(value, std::nullopt, kValue, {})());
  EXPECT_NO_THROW(error(value.to(at::kDouble), kBeta.to(at::kDouble), kValue.to(at::kDouble), {})());
}

}  // namespace
}  // namespace fem::testing
