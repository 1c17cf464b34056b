#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "fem/ops/ssm_read.h"
#include "support/error_text.h"
#include "support/ssm_cases.h"

namespace fem::testing {
namespace {

using Change = std::function<void(SsmInputs&)>;

// The read of good inputs [2, 5, 3, 4], R = 2, after a change.
void expect(const Change& change, const std::string& text) {
  SsmInputs in = cast(make_inputs({"", 2, 5, 3, 4, 2}), at::kFloat);
  change(in);
  EXPECT_TRUE(fails_with(text, [&] { ssm_read(in.value, in.beta, in.ssm, in.options); }));
}

TEST(SsmReadErrors, ShapesThatDoNotFitAreNamed) {
  expect([](SsmInputs& in) { in.value = in.value[0]; },
         "ssm_read: expected value of shape [B, T, H, V], got [5, 3, 4]");
  expect([](SsmInputs& in) { in.beta = at::ones({4}); },
         "ssm_read: expected beta of shape [3, 4] to match value [2, 5, 3, 4], got [4]");
  expect([](SsmInputs& in) { in.ssm.delta = in.ssm.delta.slice(1, 1); },
         "expected delta of shape [2, 5, 3, 4] to match value [2, 5, 3, 4], got [2, 4, 3, 4]");
  expect([](SsmInputs& in) { in.ssm.A = at::ones({3, 2}); }, "expected A of shape [3, 4, *]");
  expect([](SsmInputs& in) { in.ssm.B = at::ones({2, 5, 3}); }, "expected B of shape [2, 5, 2]");
  expect([](SsmInputs& in) { in.ssm.C = at::ones({2, 5, 3, 2}); }, "expected C of shape [2, 5, 2]");
  expect([](SsmInputs& in) { in.ssm.D = at::ones({4}); }, "expected D of shape [3, 4]");
}

TEST(SsmReadErrors, DtypesAndDevicesThatDoNotFitAreNamed) {
  expect([](SsmInputs& in) { in.value = in.value.to(at::kHalf); }, "expected float32, bfloat16 or float64, got Half");
  expect([](SsmInputs& in) { in.ssm.delta = in.ssm.delta.to(at::kDouble); },
         "ssm_read: expected delta as Float like value, got Double");
  expect([](SsmInputs& in) { in.ssm.A = in.ssm.A.to(at::kMeta); },
         "ssm_read: expected A on cpu like value, got it on meta");
}

TEST(SsmReadErrors, StatesThatDoNotFitAreNamed) {
  expect([](SsmInputs& in) { in.options.initial = at::zeros({2, 2, 3, 4, 2}); },
         "ssm_read: expected initial as Float [2, 3, 3, 4, 2] (the state of an earlier call with beta), got Float [2, "
         "2, 3, 4, 2]");
  expect([](SsmInputs& in) { in.options.initial = at::zeros({2, 3, 3, 4, 2}, at::kDouble); },
         "got Double [2, 3, 3, 4, 2]");
  expect(
      [](SsmInputs& in) {
        in.options.causal = false;
        in.options.initial = at::zeros({2, 3, 3, 4, 2});
      },
      "ssm_read: an initial state needs causal=true");
}

TEST(SsmReadErrors, MasksAndBordersThatDoNotFitAreNamed) {
  expect([](SsmInputs& in) { in.options.key_mask = at::ones({2, 4}, at::kBool); },
         "ssm_read: expected key_mask as Bool [2, 5] (true = a real token), got Bool [2, 4]");
  expect([](SsmInputs& in) { in.options.cu_seqlens = at::tensor({0, 5}, at::kLong); }, "packed in one row");
  SsmInputs one = cast(make_inputs({"", 1, 5, 3, 4, 2}), at::kFloat);
  one.options.cu_seqlens = at::tensor({0, 3, 2, 5}, at::kLong);
  EXPECT_TRUE(fails_with("ssm_read: cu_seqlens must not decrease, got 3 before 2 at index 1",
                         [&] { ssm_read(one.value, one.beta, one.ssm, one.options); }));
}

TEST(SsmReadErrors, ValuesBeyondTheRangeAreNamed) {
  SsmInputs in = make_inputs({"", 2, 150, 3, 4, 2});
  in.beta->fill_(1);
  in.value[1][140][2][3] = -52.5;
  in.value[1][141][2][3] = NAN;  // not what the message is about
  const SsmInputs low = cast(in, at::kFloat);
  EXPECT_TRUE(fails_with("ssm_read: |beta v| reaches 52.5 but float32 and bfloat16 allow 40: clip the value",
                         [&] { ssm_read(low.value, low.beta, low.ssm); }));
  EXPECT_NO_THROW(ssm_read(clip_value(low.value, *low.beta, 40), low.beta, low.ssm));
  EXPECT_NO_THROW(ssm_read(low.value, std::nullopt, low.ssm));
}

TEST(SsmReadShapes, AreKnownWithoutData) {
  for (const bool mean_only : {false, true}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
      SsmInputs in = cast(make_inputs({"", 2, 300, 3, 7, 2, false, {}, false, mean_only}), dtype);
      const RecurrentRead expected = ssm_read(in.value, in.beta, in.ssm);
      const auto meta = [](const at::Tensor& x) { return x.to(at::kMeta); };
      const std::optional<at::Tensor> beta = in.beta ? std::optional(meta(*in.beta)) : std::nullopt;
      const Ssm ssm{meta(in.ssm.delta), meta(in.ssm.A), meta(in.ssm.B), meta(in.ssm.C), meta(in.ssm.D)};
      const RecurrentRead actual = ssm_read(meta(in.value), beta, ssm);
      const auto same = [](const at::Tensor& x, const at::Tensor& y) {
        return x.defined() == y.defined() && (!x.defined() || (x.sizes() == y.sizes() && x.dtype() == y.dtype()));
      };
      EXPECT_TRUE(same(actual.mean, expected.mean) && same(actual.free_energy, expected.free_energy));
      EXPECT_TRUE(same(actual.log_normalizer, expected.log_normalizer) && same(actual.state, expected.state));
    }
  }
}

}  // namespace
}  // namespace fem::testing
