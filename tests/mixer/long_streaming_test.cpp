// Five thousand tokens, streamed and at once: every prior, every dialect, every dtype.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;
using testing::PriorInDialect;

constexpr int64_t kStreamed = 3000;

class LongStreaming : public ::testing::TestWithParam<PriorInDialect> {
 protected:
  LongStreaming() : options(testing::small_options()) {
    at::manual_seed(5);
    std::tie(options.prior_type, options.dialect) = GetParam();
    options.n_head = 1;  // the definition of the softmax read holds a number for every pair of tokens
    options.ssm_rank = 4;
  }

  // Random, but with memories of about a thousand tokens: with short ones any mistake would be forgotten soon.
  FreeEnergyMixer slow_mixer(at::ScalarType dtype) const {
    at::manual_seed(6);
    FreeEnergyMixer mixer = testing::random_mixer(options);
    auto parameters = mixer->named_parameters();
    const auto slow = [&](const std::string& name, int64_t count, double logit) {
      parameters[name + ".weight"].slice(0, 0, count).mul_(0.3);
      parameters[name + ".bias"].slice(0, 0, count).fill_(logit);
    };
    const bool rises = options.prior_type == PriorType::kMamba && options.dialect == Dialect::kReference;
    slow("tdc.fwd.in_f", 6, -7);
    if (parameters.contains("W_decay.bias")) slow("W_decay", parameters["W_decay.bias"].size(0), -7);
    if (parameters.contains("W_p.bias")) slow("W_p", sizes_of(options).value, rises ? 7 : -7);
    for (at::Tensor& parameter : mixer->parameters()) parameter.copy_(parameter.to(at::kBFloat16));
    mixer->to(dtype);
    return mixer;
  }

  // In pieces of any length, token by token for a while, and in pieces again.
  static at::Tensor streamed(FreeEnergyMixer& mixer, const at::Tensor& x) {
    constexpr int64_t kFirst = 1200, kPast = 2000;  // of the single tokens
    at::manual_seed(7);
    MixerState state;
    std::vector<at::Tensor> parts;
    for (int64_t begin = 0, end; begin < kStreamed; begin = end) {
      const bool single = begin >= kFirst && begin < kPast;
      const int64_t length = single ? 1 : at::randint(1, 300, {1}).item<int64_t>();
      end = std::min(begin + length, begin < kFirst ? kFirst : kStreamed);
      parts.push_back(mixer(x.slice(1, begin, end), state));
    }
    return at::cat(parts, 1);
  }

  void expect_equal() {
    const at::Tensor x = testing::random_tokens(1, kStreamed, options, at::kBFloat16);
    at::Tensor exact;
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(at::toString(dtype));
      FreeEnergyMixer mixer = slow_mixer(dtype);
      const at::Tensor whole = mixer(x.to(dtype)), parts = streamed(mixer, x.to(dtype));
      if (dtype == at::kDouble) exact = whole;
      EXPECT_TRUE(close(parts, whole, testing::streaming_tolerance(dtype)));
      // Whatever rounds to eight bits does so in both: what a state passes on adds nothing to that.
      if (dtype == at::kBFloat16) {
        EXPECT_TRUE(testing::about_as_exact(parts, whole, exact, testing::kTimesWholeBfloat16));
      }
    }
  }

  const at::NoGradGuard no_gradients;
  MixerOptions options;
};
INSTANTIATE_TEST_SUITE_P(Every, LongStreaming, testing::every_prior_in_every_dialect(),
                         [](const auto& info) { return testing::name_of(info.param); });

TEST_P(LongStreaming, EqualsTheWhole) { expect_equal(); }

using LongStreamingInAWindow = LongStreaming;
INSTANTIATE_TEST_SUITE_P(Every, LongStreamingInAWindow,
                         ::testing::Combine(::testing::Values(PriorType::kSoftmax),
                                            ::testing::ValuesIn(testing::all_dialects())),
                         [](const auto& info) { return testing::name_of(info.param); });

TEST_P(LongStreamingInAWindow, EqualsTheWhole) {
  options.window = 150;
  expect_equal();
}

}  // namespace
}  // namespace fem
