// mix() on weights that are not those of its options, and a module whose options were changed under its hands.
#include <ATen/ATen.h>

#include <functional>

#include "fem/mixer.h"
#include "mixer/parameters.h"
#include "mixer/random_mixer.h"
#include "support/error_text.h"

namespace fem {
namespace {

class WeightsOf : public ::testing::TestWithParam<PriorType> {
 protected:
  WeightsOf() {
    options.prior_type = GetParam();
    options.causal = false;
    options.conv_bidirectional = true;
    options.mamba_interact = GetParam() == PriorType::kMamba;
    mixer = testing::random_mixer(options);
    x = testing::random_tokens(2, 5, options);
  }

  // Every weight in turn, changed.
  void expect_refused(const std::string& sentence, const std::function<at::Tensor(const at::Tensor&)>& change) {
    const size_t count = mixer->parameters().size();
    for (size_t i = 0; i < count; ++i) {
      MixerWeights weights;
      size_t index = 0;
      std::string name;
      auto named = mixer->named_parameters();
      visit_parameters(options, weights, [&](const ParameterSpec& spec, at::Tensor& slot) {
        slot = index == i ? change(named[spec.name]) : named[spec.name];
        if (index++ == i) name = spec.name;
      });
      EXPECT_TRUE(testing::fails_with("mix: expected ", [&] { mix(x, weights, options); })) << name;
      EXPECT_TRUE(testing::fails_with(sentence, [&] { mix(x, weights, options); })) << name;
    }
  }

  MixerOptions options = testing::small_options();
  FreeEnergyMixer mixer{nullptr};
  at::Tensor x;
};
INSTANTIATE_TEST_SUITE_P(Prior, WeightsOf, ::testing::ValuesIn(testing::all_priors()),
                         [](const auto& info) { return spelled(info.param); });

TEST_P(WeightsOf, AnyThatIsMissingIsRefused) {
  expect_refused("got none; weights belong to the options they were made for",
                 [](const at::Tensor&) { return at::Tensor(); });
}

TEST_P(WeightsOf, AnyOfAnotherShapeIsRefused) {
  const std::string sentence = "weights belong to the options they were made for";
  expect_refused(sentence, [](const at::Tensor& w) { return w.slice(0, 1); });
  expect_refused(sentence, [](const at::Tensor& w) { return w.unsqueeze(0); });
  expect_refused(sentence, [](const at::Tensor& w) { return at::cat({w, w}, -1); });
  expect_refused(sentence, [](const at::Tensor& w) { return w.slice(0, 0, 0); });
}

// Of the first, W_v's weight, x is said to be of another dtype.
TEST_P(WeightsOf, AnyOfAnotherDtypeIsRefused) {
  expect_refused("", [](const at::Tensor& w) { return w.to(at::kFloat); });
}

TEST_P(WeightsOf, ABiasThatTheOptionsDoNotKnowIsRefused) {
  options.bias = false;
  EXPECT_TRUE(testing::fails_with("without a bias, got one of shape", [&] { mix(x, mixer->weights, options); }));
}

// Every option that decides about parameters, changed after they were made.
TEST_P(WeightsOf, OptionsChangedAfterwardsAreRefused) {
  const auto other = GetParam() == PriorType::kMamba ? PriorType::kSoftmax : PriorType::kMamba;
  const std::vector<std::pair<std::string, std::function<void(MixerOptions&)>>> changes{
      {"n_embd", [](auto& o) { o.n_embd = 32; }},
      {"wider", [](auto& o) { o.fem_dim = 64; }},
      {"bias", [](auto& o) { o.bias = false; }},
      {"conv_hidden", [](auto& o) { o.conv_hidden = 8; }},
      {"conv_norm_first", [](auto& o) { o.conv_norm_first = false; }},
      {"outer gate", [](auto& o) { o.use_outer_gate = false; }},
      {"prior", [&](auto& o) { o.mamba_interact = false, o.prior_type = other; }},
  };
  for (const auto& [name, change] : changes) {
    FreeEnergyMixer changed = testing::random_mixer(options);
    change(changed->options);
    EXPECT_TRUE(testing::fails_with("mix: expected", [&] { changed->forward(x); })) << name;
  }
}

}  // namespace
}  // namespace fem
