// A state belongs to the layer that began it: every other refuses it with a sentence, and leaves it as it was.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;
using testing::fails_with;
using testing::random_mixer;
using testing::random_tokens;
using testing::small_options;

constexpr int64_t kSeen = 7;
const std::string kRemedy = "; a state belongs to the layer that began it, start from a new one";

// Runs once for every prior, with a state that its layer has begun.
class StateBelongs : public ::testing::TestWithParam<PriorType> {
 protected:
  StateBelongs() {
    options.prior_type = GetParam();
    mixer = random_mixer(options);
    expected = mixer(x).detach();
    mixer(x.slice(1, 0, kSeen), state);
  }

  // The layer that these options describe refuses the state; its own goes on with it.
  ::testing::AssertionResult is_refused_by(const MixerOptions& other, const std::string& text,
                                           at::ScalarType dtype = at::kDouble) {
    FreeEnergyMixer stranger = random_mixer(other, dtype);
    const at::Tensor rest = random_tokens(2, 3, other, dtype);
    const auto refused = fails_with(text, [&] { stranger(rest, state); });
    if (!refused) return refused;
    MixerState copy = state;
    return close(mixer(x.slice(1, kSeen), copy), expected.slice(1, kSeen), testing::kFloat64);
  }
  // Another value of one option.
  template <typename Value>
  ::testing::AssertionResult is_refused_with(Value MixerOptions::* field, const Value& value, const std::string& text) {
    MixerOptions other = options;
    other.*field = value;
    return is_refused_by(other, text);
  }
  // A state that was damaged is refused by its own layer.
  ::testing::AssertionResult is_refused_after(const std::function<void(MixerState&)>& damage, const std::string& text) {
    MixerState damaged = state.clone();
    damage(damaged);
    return fails_with(text, [&] { mixer(x.slice(1, kSeen), damaged); });
  }
  bool is_softmax() const { return GetParam() == PriorType::kSoftmax; }
  std::string memory() const { return is_softmax() ? "key" : "sums"; }

  MixerOptions options = small_options();
  at::Tensor x = random_tokens(2, 10, options);
  FreeEnergyMixer mixer{nullptr};
  at::Tensor expected;
  MixerState state;
};
INSTANTIATE_TEST_SUITE_P(Prior, StateBelongs, ::testing::ValuesIn(testing::all_priors()),
                         [](const auto& info) { return spelled(info.param); });

std::string words_of(const MixerOptions& o) {
  return spelled(o.prior_type) + ", " + spelled(o.dialect) + ", " + (o.rotates() ? "rope 10000" : "no rope");
}

TEST_P(StateBelongs, NotToAnotherPrior) {
  for (const PriorType prior : testing::all_priors()) {
    if (prior == GetParam()) continue;
    MixerOptions other = options;
    other.prior_type = prior;
    EXPECT_TRUE(is_refused_by(other, "mix: expected a state of the layer (" + words_of(other) +
                                         "), got one of the layer (" + words_of(options) + ")" + kRemedy));
  }
}

TEST_P(StateBelongs, NotToOtherRules) {
  EXPECT_TRUE(is_refused_with(&MixerOptions::dialect, Dialect::kPaper, spelled(GetParam()) + ", paper, "));
  EXPECT_TRUE(is_refused_with(&MixerOptions::dialect, Dialect::kReference, spelled(GetParam()) + ", reference, "));
  const std::optional<bool> turned = !options.rotates();
  EXPECT_TRUE(is_refused_with(&MixerOptions::use_rope, turned, *turned ? "corrected, rope 10000)" : "no rope)"));
  if (options.rotates()) {
    EXPECT_TRUE(is_refused_with(&MixerOptions::rope_theta, 500.5, "corrected, rope 500.5), got one of"));
  }
  if (is_softmax()) {
    EXPECT_TRUE(is_refused_with(&MixerOptions::window, std::optional<int64_t>(4), "rope 10000, window 4), got one of"));
  }
}

TEST_P(StateBelongs, NotToAnotherConditioner) {
  EXPECT_TRUE(is_refused_with(&MixerOptions::use_conv, false,
                              "mix: this layer has no conditioner, but the state holds one's h" + kRemedy));
  EXPECT_TRUE(is_refused_with(
      &MixerOptions::conv_hidden, std::optional<int64_t>(8),
      "mix: expected the state's conditioner as Double [2, 8] on cpu, got Double [2, 6] on cpu" + kRemedy));
  EXPECT_TRUE(is_refused_after([](MixerState& s) { s.conditioner = at::Tensor(); },
                               "mix: expected the state to hold conditioner of the 7 tokens it has seen, got none"));
}

TEST_P(StateBelongs, NotToAnotherSizeOrDtype) {
  const std::string text = "mix: expected the state's " + memory() + " as Double [";
  EXPECT_TRUE(is_refused_with(&MixerOptions::n_head, int64_t{4}, text));
  EXPECT_TRUE(is_refused_with(&MixerOptions::fem_dim, std::optional<int64_t>(16), text));
  if (sizes_of(options).key > 0 && GetParam() != PriorType::kRnnSoftmax) {
    EXPECT_TRUE(is_refused_with(&MixerOptions::qk_dim, std::optional<int64_t>(8), text));
  }
  if (GetParam() == PriorType::kMamba) {
    EXPECT_TRUE(is_refused_with(&MixerOptions::ssm_rank, int64_t{5}, text));
  }
  MixerOptions mean = options;
  mean.use_lse = mean.use_temperature = false;
  if (!is_softmax()) {  // whose cache is of values alone
    EXPECT_TRUE(is_refused_by(mean, text));
  }
  EXPECT_TRUE(is_refused_by(options, "mix: expected the state's conditioner as Float [2, 6] on cpu, got Double [2, 6]",
                            at::kFloat));
  options.use_conv = false;
  mixer = random_mixer(options);
  state = {};
  mixer(x.slice(1, 0, kSeen), state);
  expected = mixer(x).detach();
  EXPECT_TRUE(is_refused_by(
      options, "mix: expected the state's " + memory() + " as " + (is_softmax() ? "BFloat16 [" : "Float ["),
      at::kBFloat16));
}

TEST_P(StateBelongs, NotToAnotherBatch) {
  EXPECT_TRUE(
      fails_with("mix: expected x with the state's batch size 2, got [3, 1, 16]; start from a new state or use "
                 "state.select",
                 [&] { mixer(random_tokens(3, 1, options), state); }));
}

TEST_P(StateBelongs, WhatIsMissingIsSaid) {
  EXPECT_TRUE(is_refused_after(
      [](MixerState& s) {
        s.caches.clear();
        s.accumulators.clear();
      },
      "mix: expected the state to hold " + memory() + " of the 7 tokens it has seen, got none" + kRemedy));
  EXPECT_TRUE(is_refused_after([](MixerState& s) { s.layer.clear(); }, "), got one of no layer" + kRemedy));
  MixerState bare;
  bare.tokens = kSeen;
  EXPECT_TRUE(fails_with("got one of no layer", [&] { mixer(x, bare); }));
}

TEST_P(StateBelongs, WhatIsTooMuchIsSaid) {
  const bool softmax = is_softmax();
  EXPECT_TRUE(is_refused_after(
      [&](MixerState& s) {
        if (softmax)
          s.accumulators["sums"] = at::ones({2, 1});
        else
          s.caches["key"].append(at::ones({2, kSeen, 1}));
      },
      std::string("mix: this layer remembers no ") + (softmax ? "sums" : "key") + ", but the state holds it" +
          kRemedy));
}

TEST_P(StateBelongs, TokensThatCannotBeAreRefused) {
  const std::string text = "mix: expected a new state or one that has seen tokens, up to 2^53, got tokens = ";
  EXPECT_TRUE(is_refused_after([](MixerState& s) { s.tokens = -5; }, text + "-5" + kRemedy));
  EXPECT_TRUE(is_refused_after([](MixerState& s) { s.tokens = 0; }, text + "0" + kRemedy));
  EXPECT_TRUE(is_refused_after([](MixerState& s) { s.tokens = INT64_MAX; }, text + "9223372036854775807" + kRemedy));
  MixerState negative;
  negative.tokens = -5;
  EXPECT_TRUE(fails_with(text + "-5", [&] { mixer(x, negative); }));
  EXPECT_EQ(negative.tokens, -5);
}

TEST_P(StateBelongs, PositionsOfAnotherKindAreRefused) {
  EXPECT_TRUE(is_refused_after([](MixerState& s) { s.positions = at::ones({2}); },
                               "mix: expected the state's positions as Long [2] on cpu, got Float [2] on cpu"));
}

// An empty call before the first token leaves a state new: any layer may begin it.
TEST_P(StateBelongs, ToNobodyBeforeItsFirstToken) {
  MixerState fresh;
  mixer(x.slice(1, 0, 0), fresh);
  EXPECT_TRUE(fresh.is_new());
  MixerOptions other = options;
  other.n_head = 4;
  EXPECT_NO_THROW(random_mixer(other)->forward(x, fresh));
}

TEST_P(StateBelongs, ToItsLayerAfterAnyJourney) {
  MixerState loaded = MixerState::from_tensors(state.to_tensors());
  MixerState other = state.select(at::tensor({1, 0})), cloned = state.clone(), rolled;
  rolled.rollback(state);
  for (MixerState* s : {&loaded, &other, &cloned, &rolled}) {
    EXPECT_EQ(s->layer, words_of(options));
    EXPECT_NO_THROW(mixer(x.slice(1, kSeen), *s));
    s->layer = "gla, of another world";
    EXPECT_TRUE(fails_with("got one of the layer (gla, of another world)", [&] { mixer(x, *s); }));
  }
}

class SoftmaxState : public ::testing::Test {
 protected:
  // A state whose second row has two tokens of padding, and its tensors.
  void begin(std::optional<int64_t> window) {
    options.window = window;
    mixer = random_mixer(options);
    for (int64_t t = 0; t < kSeen; ++t)
      mixer->forward(x.slice(1, t, t + 1), state, Batch{at::tensor({0, 2}).le(t).view({2, 1}), {}});
    tensors = state.to_tensors();
  }
  ::testing::AssertionResult is_refused(const std::string& text) {
    MixerState damaged = MixerState::from_tensors(tensors);
    return fails_with(text, [&] { mixer(x, damaged); });
  }

  MixerOptions options = small_options();
  at::Tensor x = random_tokens(2, 10, options);
  FreeEnergyMixer mixer{nullptr};
  MixerState state;
  std::map<std::string, at::Tensor> tensors;
};

TEST_F(SoftmaxState, HoldsEveryTokenInEveryCache) {
  begin({});
  for (const char* name : {"key", "value", "visible"}) {
    const std::string entry = std::string("cache.") + name;
    const at::Tensor whole = tensors[entry];
    tensors[entry] = whole.slice(1, 1);
    EXPECT_TRUE(is_refused(std::string("mix: expected the state's ") + name + " as "));
    tensors.erase(entry);
    EXPECT_TRUE(is_refused(std::string("expected the state to hold ") + name + " of the 7 tokens"));
    tensors[entry] = whole;
  }
  tensors.erase("positions");
  EXPECT_TRUE(is_refused("this layer remembers no visible"));
}

TEST_F(SoftmaxState, HoldsAtLeastItsWindow) {
  begin(5);
  const std::vector<std::string> entries{"cache.key", "cache.value", "cache.visible"};
  const auto whole = tensors;
  for (const std::string& entry : entries) tensors[entry] = whole.at(entry).slice(1, kSeen - 5);
  MixerState shorter = MixerState::from_tensors(tensors);
  EXPECT_TRUE(close(mixer(x, shorter), mixer(x, state), testing::kFloat64));
  for (const std::string& entry : entries) tensors[entry] = whole.at(entry).slice(1, kSeen - 4);
  EXPECT_TRUE(is_refused("mix: expected the state's key as Double [2, 5, 2, 8] on cpu, got Double [2, 4, 2, 8]"));
  tensors = whole;
  tensors["cache.value"] = whole.at("cache.value").slice(1, 1);
  EXPECT_TRUE(is_refused("mix: expected the state's value as Double [2, 7, 2, 4] on cpu, got Double [2, 6, 2, 4]"));
}

// Who computes the read leaves nothing in a state, nor does what is done to its result.
TEST_F(SoftmaxState, GoesOnWithAnotherBackend) {
  begin({});
  for (const SoftmaxBackend backend : testing::all_of<SoftmaxBackend>()) {
    MixerOptions other = options;
    other.softmax_backend = backend;
    MixerState copy = state, own = state;
    EXPECT_TRUE(close(mix(x, mixer->weights, other, {}, &copy), mixer(x, own), testing::kFloat64));
  }
}

}  // namespace
}  // namespace fem
