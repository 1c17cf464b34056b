#include <ATen/ATen.h>

#include <limits>

#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

MixerSizes sizes(int64_t n_embd, int64_t n_head, double fem_ratio, double p_t_to_fem_ratio) {
  MixerOptions options;
  options.n_embd = n_embd;
  options.n_head = n_head;
  options.fem_ratio = fem_ratio;
  options.p_t_to_fem_ratio = p_t_to_fem_ratio;
  return sizes_of(options);
}

TEST(MixerSizes, FollowTheRatios) {
  const MixerSizes s = sizes(768, 12, 0.5, 4.0);
  EXPECT_EQ(s.value, 384);
  EXPECT_EQ(s.head_value, 32);
  EXPECT_EQ(s.key, 768);
  EXPECT_EQ(s.head_key, 64);
}

TEST(MixerSizes, RoundToWholeHeadsWithTiesDown) {
  EXPECT_EQ(sizes(40, 4, 0.5, 4.0).value, 16);  // 20 of 16 and 32
  EXPECT_EQ(sizes(48, 4, 0.5, 4.0).value, 16);  // 24, a tie
  EXPECT_EQ(sizes(52, 4, 0.5, 4.0).value, 32);  // 26
  EXPECT_EQ(sizes(16, 4, 0.1, 4.0).value, 16);  // at least one multiple
  EXPECT_EQ(sizes(64, 4, 0.5, 0.01).key, 8);    // likewise
  EXPECT_EQ(sizes(64, 4, 0.5, 1.25).key, 16);   // 20, a tie of 16 and 24
  EXPECT_EQ(sizes(64, 4, 0.5, 1.4).key, 24);    // 22
}

TEST(MixerSizes, TakeExplicitWidths) {
  MixerOptions options = testing::small_options();
  options.fem_dim = 25;
  options.qk_dim = 21;
  EXPECT_EQ(sizes_of(options).value, 24);
  EXPECT_EQ(sizes_of(options).key, 20);
}

TEST(MixerSizes, SomePriorsHaveNarrowerKeysOrNone) {
  MixerOptions options;
  options.n_embd = 64;
  options.n_head = 2;
  options.fem_ratio = 0.75;  // V = 24
  options.prior_type = PriorType::kRnnSoftmax;
  for (const auto& [ratio, width] : {std::pair{4.0, 24}, std::pair{1.5, 12}, std::pair{1.2, 12}, std::pair{0.1, 2}}) {
    options.p_t_to_fem_ratio = ratio;
    EXPECT_EQ(sizes_of(options).head_key, width) << ratio;
  }
  for (const PriorType prior : {PriorType::kRnnDecay, PriorType::kMamba}) {
    options.prior_type = prior;
    EXPECT_EQ(sizes_of(options).key, 0);
  }
}

TEST(MixerSizes, BothBudgetsHaveTheWeightsOfAttention) {
  for (const auto& [fem_ratio, key_ratio] : {std::pair{1.0 / 2, 4.0}, std::pair{2.0 / 3, 2.0}}) {
    MixerOptions options;
    options.n_embd = 384;
    options.n_head = 8;
    options.fem_ratio = fem_ratio;
    options.p_t_to_fem_ratio = key_ratio;
    options.use_conv = false;
    options.bias = false;
    int64_t weights = 0;
    for (const auto& spec : mixer_parameters(options))
      if (spec.shape.size() == 2) weights += spec.shape[0] * spec.shape[1];
    EXPECT_EQ(weights, 4 * 384 * 384) << fem_ratio;
  }
}

// Left unset, some options follow the dialect; set, they are what they say.
TEST(MixerSizes, OfTheConditionerFollowTheDialectUnlessSet) {
  MixerOptions options;
  options.n_embd = 768;
  options.n_head = 12;
  for (const auto& [dialect, width] :
       {std::pair{Dialect::kCorrected, 64}, std::pair{Dialect::kReference, 64}, std::pair{Dialect::kPaper, 24}}) {
    options.dialect = dialect;
    options.conv_hidden.reset();
    EXPECT_EQ(sizes_of(options).conditioner, width) << "E = 384, a sixteenth of it is 24";
    options.conv_hidden = 10;
    EXPECT_EQ(sizes_of(options).conditioner, 10);
  }
  options.conv_hidden.reset();
  for (const auto& [value, width] : {std::pair{48, 4}, std::pair{144, 8}, std::pair{240, 16}}) {  // 3, 9, 15: to fours
    options.fem_dim = value;
    EXPECT_EQ(sizes_of(options).conditioner, width) << value;
  }
}

TEST(MixerOptions, RotateTheLogitsOfRnnSoftmaxOnlyInTheAuthorsDialectUnlessAsked) {
  for (const PriorType prior : testing::all_priors())
    for (const Dialect dialect : testing::all_dialects()) {
      MixerOptions options = testing::small_options();
      options.prior_type = prior;
      options.dialect = dialect;
      const at::Tensor x = testing::random_tokens(1, 6, options);
      FreeEnergyMixer mixer = testing::random_mixer(options);
      const at::Tensor unset = mixer(x);
      mixer->options.use_rope = true;
      const at::Tensor on = mixer(x);
      mixer->options.use_rope = false;
      const at::Tensor off = mixer(x);
      SCOPED_TRACE(spelled(prior) + " " + spelled(dialect));
      const bool has_keys = prior != PriorType::kRnnDecay && prior != PriorType::kMamba;
      EXPECT_EQ(at::equal(on, off), !has_keys);
      const bool expected = prior != PriorType::kRnnSoftmax || dialect == Dialect::kReference;
      EXPECT_TRUE(at::equal(unset, expected ? on : off));
    }
}

struct BadOption {
  const char* text;
  void (*set)(MixerOptions&);
};

TEST(MixerOptions, EachBadValueGetsItsSentence) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const BadOption bad[] = {
      {"expected n_embd of at least 1, got 0", [](MixerOptions& o) { o.n_embd = 0; }},
      {"expected n_head of at least 1, got -1", [](MixerOptions& o) { o.n_head = -1; }},
      {"expected n_embd to be a multiple of n_head, got n_embd=16 and n_head=3", [](MixerOptions& o) { o.n_head = 3; }},
      {"expected fem_dim of at least 1, got 0", [](MixerOptions& o) { o.fem_dim = 0; }},
      {"expected fem_ratio > 0, got 0", [](MixerOptions& o) { o.fem_ratio = 0; }},
      {"expected fem_ratio > 0, got nan", [](MixerOptions& o) { o.fem_ratio = nan; }},
      {"expected qk_dim of at least 1, got -2", [](MixerOptions& o) { o.qk_dim = -2; }},
      {"expected p_t_to_fem_ratio > 0, got -1", [](MixerOptions& o) { o.p_t_to_fem_ratio = -1; }},
      {"expected dropout in [0, 1), got 1", [](MixerOptions& o) { o.dropout = 1; }},
      {"expected dropout in [0, 1), got -0.1", [](MixerOptions& o) { o.dropout = -0.1; }},
      {"expected a finite beta_max_init", [](MixerOptions& o) { o.beta_max_init = nan; }},
      {"expected value_logexp_cap in (0, 40], got 41", [](MixerOptions& o) { o.value_logexp_cap = 41; }},
      {"expected value_logexp_cap in (0, 40], got 0", [](MixerOptions& o) { o.value_logexp_cap = 0; }},
      {"expected eps > 0, got 0", [](MixerOptions& o) { o.eps = 0; }},
      {"expected rope_theta > 0, got 0", [](MixerOptions& o) { o.rope_theta = 0; }},
      {"expected conv_hidden of at least 1, got 0", [](MixerOptions& o) { o.conv_hidden = 0; }},
      {"expected causal to be false", [](MixerOptions& o) { o.conv_bidirectional = true; }},
      {"expected an even conv_hidden",
       [](MixerOptions& o) { o.causal = false, o.conv_bidirectional = true, o.conv_hidden = 7; }},
      {"expected ssm_rank of at least 1, got 0", [](MixerOptions& o) { o.ssm_rank = 0; }},
      {"expected a window of at least 1 token, got 0", [](MixerOptions& o) { o.window = 0; }},
      {"a window belongs to prior_type softmax", [](MixerOptions& o) { o.window = 4, o.prior_type = PriorType::kGla; }},
      {"expected auto with another prior",
       [](MixerOptions& o) { o.softmax_backend = SoftmaxBackend::kSdpa, o.prior_type = PriorType::kLinear; }},
      {"mamba_interact needs prior_type mamba", [](MixerOptions& o) { o.mamba_interact = true; }},
      {"set one of the three to true",
       [](MixerOptions& o) { o.use_inner_gate = o.use_lse = o.use_temperature = false; }},
  };
  for (const auto& [text, set] : bad) {
    MixerOptions options = testing::small_options();
    set(options);
    EXPECT_TRUE(fails_with(text, [&] { sizes_of(options); }));
    EXPECT_TRUE(fails_with("mixer options: ", [&] { FreeEnergyMixer mixer(options); }));
  }
}

}  // namespace
}  // namespace fem
