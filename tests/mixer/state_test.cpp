#include "fem/state.h"

#include <ATen/ATen.h>

#include "fem/io/safetensors.h"
#include "fem/mixer.h"
#include "io/temporary_folder.h"
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

at::Tensor numbers(int64_t begin, int64_t end) { return at::arange(begin, end).view({1, -1, 1}); }

TEST(TokenCache, AppendsInPlaceWhileThereIsRoom) {
  TokenCache cache;
  EXPECT_FALSE(cache.rows().defined());
  cache.append(numbers(0, 4));
  cache.append(numbers(4, 5));
  const void* memory = cache.rows().const_data_ptr();
  cache.append(numbers(5, 8));
  EXPECT_EQ(cache.rows().const_data_ptr(), memory);
  EXPECT_TRUE(at::equal(cache.rows(), numbers(0, 8)));
}

TEST(TokenCache, ACopyThatGoesOnDifferentlyTakesItsOwnMemory) {
  TokenCache cache;
  cache.append(numbers(0, 4));
  cache.append(numbers(4, 5));
  TokenCache copy = cache;
  EXPECT_EQ(copy.rows().const_data_ptr(), cache.rows().const_data_ptr());
  cache.append(numbers(5, 7));
  copy.append(numbers(50, 52));
  EXPECT_TRUE(at::equal(cache.rows(), numbers(0, 7)));
  EXPECT_TRUE(at::equal(copy.rows(), at::cat({numbers(0, 5), numbers(50, 52)}, 1)));
}

TEST(TokenCache, RollsBackInPlaceUnlessAThirdCopyHoldsTheRows) {
  for (const bool third : {false, true}) {
    TokenCache cache;
    cache.append(numbers(0, 4));
    cache.append(numbers(4, 5));
    const void* memory = cache.rows().const_data_ptr();
    const TokenCache snapshot = cache;
    cache.append(numbers(5, 7));
    const TokenCache longer = third ? cache : TokenCache();
    cache.rollback(snapshot);
    cache.append(numbers(50, 51));
    EXPECT_EQ(cache.rows().const_data_ptr() == memory, !third);
    EXPECT_TRUE(at::equal(cache.rows(), at::cat({numbers(0, 5), numbers(50, 51)}, 1)));
    EXPECT_TRUE(at::equal(snapshot.rows(), numbers(0, 5)));
    if (third) {
      EXPECT_TRUE(at::equal(longer.rows(), numbers(0, 7)));
    }
  }
}

TEST(TokenCache, RollingBackToItselfKeepsOtherCopies) {
  TokenCache cache;
  cache.append(numbers(0, 4));
  TokenCache shorter = cache;
  cache.append(numbers(4, 8));
  TokenCache longer = cache;
  cache = shorter;
  cache.rollback(cache);
  cache.append(numbers(50, 51));
  EXPECT_TRUE(at::equal(longer.rows(), numbers(0, 8)));
}

TEST(TokenCache, RefusesRowsOfAnotherKind) {
  TokenCache cache;
  cache.append(numbers(0, 4));
  EXPECT_TRUE(fails_with("TokenCache: expected Long rows of shape [1, 2, 1], got Long [2, 2, 1]",
                         [&] { cache.append(at::zeros({2, 2, 1}, at::kLong)); }));
  EXPECT_TRUE(fails_with("got Float", [&] { cache.append(at::zeros({1, 2, 1})); }));
}

// A mixer that has read the first tokens of some rows, and what it should say about the rest.
class State : public testing::TemporaryFolder, public ::testing::WithParamInterface<testing::PriorInDialect> {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    MixerOptions options = small_options();
    std::tie(options.prior_type, options.dialect) = GetParam();
    mixer = random_mixer(options);
    mask = at::arange(12).ge(at::tensor({0, 2, 7}).unsqueeze(1));
    x = random_tokens(3, 12, mixer->options);
    expected = mixer->forward(x, Batch{mask, {}}).detach();
    read(state, x, 0, 7);
  }
  at::Tensor read(MixerState& s, const at::Tensor& tokens, int64_t begin, int64_t end) {
    return mixer->forward(tokens.slice(1, begin, end), s, Batch{mask.slice(1, begin, end), {}});
  }
  ::testing::AssertionResult goes_on(MixerState& s) {
    return close(read(s, x, s.tokens, 12), expected.slice(1, 7), testing::kFloat64);
  }

  FreeEnergyMixer mixer{nullptr};
  at::Tensor mask, x, expected;
  MixerState state;
};

INSTANTIATE_TEST_SUITE_P(Prior, State, testing::every_prior_in_every_dialect(),
                         [](const auto& info) { return testing::name_of(info.param); });

TEST_P(State, ACopyIsASnapshot) {
  MixerState copy = state;
  EXPECT_TRUE(goes_on(state));
  EXPECT_EQ(copy.tokens, 7);
  EXPECT_TRUE(goes_on(copy));
}

TEST_P(State, ACloneSharesNoMemory) {
  MixerState copy = state.clone();
  for (auto& [name, cache] : state.caches) cache.rows().zero_();
  for (auto& [name, tensor] : state.accumulators) tensor.zero_();
  state.conditioner.zero_();
  state.positions.zero_();
  EXPECT_TRUE(goes_on(copy));
}

TEST_P(State, SurvivesSavingAndLoading) {
  save_safetensors(folder / "state.safetensors", {state.to_tensors(), {}});
  EXPECT_TRUE(goes_on(state));
  MixerState loaded = MixerState::from_tensors(load_safetensors(folder / "state.safetensors").tensors);
  EXPECT_TRUE(goes_on(loaded));
  MixerState fresh = MixerState::from_tensors(MixerState().to_tensors());
  read(fresh, x, 0, 7);
  EXPECT_TRUE(goes_on(fresh));
}

TEST_P(State, SavedTensorsDoNotChangeWithTheState) {
  const MixerState before = state;
  const auto saved = state.to_tensors();
  read(state, x, 7, 9);
  state.rollback(before);
  read(state, -x, 7, 9);
  MixerState loaded = MixerState::from_tensors(saved);
  EXPECT_TRUE(goes_on(loaded));
}

TEST_P(State, RefusesTensorsThatAreNoState) {
  EXPECT_TRUE(fails_with("expected an entry \"tokens\"", [&] { MixerState::from_tensors({}); }));
  auto tensors = state.to_tensors();
  tensors["weights"] = at::ones(1);
  EXPECT_TRUE(fails_with("unknown entry \"weights\"", [&] { MixerState::from_tensors(tensors); }));
  const auto with = [&](const std::string& name, const at::Tensor& tensor) {
    auto changed = state.to_tensors();
    changed[name] = tensor;
    return [changed] { MixerState::from_tensors(changed); };
  };
  EXPECT_TRUE(fails_with("expected tokens of at least 0, got -5", with("tokens", at::scalar_tensor(-5, at::kLong))));
  EXPECT_TRUE(
      fails_with("expected tokens as one Long, got Double []", with("tokens", at::scalar_tensor(7.0, at::kDouble))));
  EXPECT_TRUE(fails_with("expected tokens as one Long, got Long [2]", with("tokens", at::tensor({7, 7}, at::kLong))));
  EXPECT_TRUE(
      fails_with("expected layer as Byte [characters], got Long [1]", with("layer", at::tensor({7}, at::kLong))));
  EXPECT_TRUE(fails_with("expected cache.key of shape [B, T, ...], got [7]", with("cache.key", at::ones({7}))));
  EXPECT_TRUE(fails_with("expected positions as Long [B], got Float [3]", with("positions", at::ones({3}))));
  EXPECT_TRUE(fails_with("expected positions from 0 to the 7 tokens seen, got 1 ... 8",
                         with("positions", at::tensor({1, 8, 2}, at::kLong))));
  EXPECT_TRUE(fails_with("tokens seen, got -1 ... 2", with("positions", at::tensor({1, -1, 2}, at::kLong))));
}

TEST_P(State, RowsCanBeReorderedRepeatedAndDropped) {
  const at::Tensor order = at::tensor({2, 0, 2, 1});
  MixerState selected = state.select(order);
  const at::Tensor y = mixer->forward(x.index_select(0, order).slice(1, 7), selected,
                                      Batch{mask.index_select(0, order).slice(1, 7), {}});
  EXPECT_TRUE(close(y, expected.index_select(0, order).slice(1, 7), testing::kFloat64));
  EXPECT_TRUE(goes_on(state));
  MixerState one = state.select(at::tensor({1}));
  EXPECT_EQ(one.conditioner.size(0), 1);
  EXPECT_TRUE(fails_with("expected batch_index as int32 or int64 [rows]", [&] { state.select(at::ones({1})); }));
}

TEST_P(State, RollsBackAndGoesOnDifferently) {
  const MixerState snapshot = state;
  const at::Tensor other = random_tokens(3, 12, mixer->options);
  read(state, other, 7, 12);
  const MixerState elsewhere = state;
  state.rollback(snapshot);
  EXPECT_EQ(state.tokens, 7);
  EXPECT_TRUE(goes_on(state));
  state.rollback(elsewhere);
  EXPECT_EQ(state.tokens, 12);
  state.rollback(snapshot);
  read(state, other, 7, 9);
  state.rollback(snapshot);
  EXPECT_TRUE(goes_on(state));
}

TEST_P(State, RollsBackToTheBeginning) {
  state.rollback(MixerState());
  EXPECT_EQ(state.tokens, 0);
  EXPECT_TRUE(state.caches.empty() && state.accumulators.empty());
  read(state, x, 0, 7);
  EXPECT_TRUE(goes_on(state));
}

}  // namespace
}  // namespace fem
