#include "io/mixer_config.h"

#include <nlohmann/json.hpp>

#include "support/error_text.h"

namespace fem {
namespace {

using nlohmann::json;
using testing::fails_with;

TEST(MixerConfig, SurvivesTheRoundTrip) {
  MixerOptions options;
  options.n_embd = 48;
  options.qk_dim = 32;
  options.window = 7;
  options.eps = 1e-7;
  options.use_conv = false;
  options.dialect = Dialect::kReference;
  options.softmax_backend = SoftmaxBackend::kSdpa;
  const json saved = to_json(options);
  EXPECT_EQ(saved["dialect"], "reference");
  EXPECT_TRUE(saved["fem_dim"].is_null());
  EXPECT_EQ(to_json(mixer_options_from_json(json::parse(saved.dump()))), saved);
}

TEST(MixerConfig, AbsentFieldsKeepTheirDefaults) {
  const MixerOptions options = mixer_options_from_json({{"n_embd", 8}, {"value_logexp_cap", 20}});
  EXPECT_EQ(options.n_embd, 8);
  EXPECT_EQ(options.value_logexp_cap, 20.0);
  EXPECT_EQ(options.fem_ratio, 0.5);
  EXPECT_FALSE(options.window);
}

TEST(MixerConfig, RefusesWhatItDoesNotKnow) {
  const auto parse = [](const json& in) { return [=] { mixer_options_from_json(in); }; };
  EXPECT_TRUE(fails_with("unknown field \"n_heads\"", parse({{"n_heads", 4}})));
  EXPECT_TRUE(fails_with("expected a JSON object", parse(json::array())));
  EXPECT_TRUE(fails_with("expected n_embd to be an integer, got 4.5", parse({{"n_embd", 4.5}})));
  EXPECT_TRUE(fails_with("expected n_embd to be an integer, got null", parse({{"n_embd", nullptr}})));
  EXPECT_TRUE(fails_with("expected n_embd to be an integer", parse({{"n_embd", 18446744073709551615u}})));
  EXPECT_TRUE(fails_with("expected window to be an integer, got \"8\"", parse({{"window", "8"}})));
  EXPECT_TRUE(fails_with("expected eps to be a number, got true", parse({{"eps", true}})));
  EXPECT_TRUE(fails_with("expected causal to be true or false, got 1", parse({{"causal", 1}})));
  EXPECT_TRUE(fails_with("expected dialect to be one of \"corrected\", \"reference\", \"paper\", got \"fem\"",
                         parse({{"dialect", "fem"}})));
}

TEST(MixerConfig, FlashIsRefusedWithTheReason) {
  EXPECT_TRUE(fails_with("needs CUDA", [] { mixer_options_from_json({{"softmax_backend", "flash"}}); }));
}

}  // namespace
}  // namespace fem
