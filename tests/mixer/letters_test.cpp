#include "fem/letters.h"

#include <ATen/ATen.h>

#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

class Letters : public ::testing::TestWithParam<PriorInDialect> {};
INSTANTIATE_TEST_SUITE_P(Prior, Letters, every_prior_in_every_dialect(),
                         [](const auto& info) { return name_of(info.param); });

int64_t parameters_with(const MixerOptions& options) {
  int64_t count = 0;
  for (const at::Tensor& parameter : FreeEnergyMixer(options)->parameters()) count += parameter.numel();
  return count;
}

TEST_P(Letters, GiveMixersOfEqualSize) {
  MixerOptions options;
  options.n_embd = 128;
  options.n_head = 4;
  std::tie(options.prior_type, options.dialect) = GetParam();
  const int64_t full = parameters_with(options);
  for (const std::string_view letters : kLetters) {
    SCOPED_TRACE(std::string(letters));
    const LetterChoice choice = with_letters(options, letters);
    EXPECT_EQ(choice.full_parameters, full);
    EXPECT_EQ(choice.parameters, parameters_with(choice.options));
    // No neighbouring width comes nearer.
    for (const int64_t step : {-16, 16}) {
      MixerOptions other = choice.options;
      other.fem_dim = *other.fem_dim + step;
      if (*other.fem_dim < sizes_of(options).value) continue;
      EXPECT_GE(std::abs(parameters_with(other) - full), std::abs(choice.parameters - full)) << step;
    }
    const auto has = [&](char letter) { return letters.find(letter) != std::string_view::npos; };
    EXPECT_EQ(choice.options.use_conv, has('C'));
    EXPECT_EQ(choice.options.has_free_energy(), has('L'));
    EXPECT_EQ(choice.options.has_inner_gate(), has('T'));
    EXPECT_EQ(choice.options.use_temperature, has('T'));
    EXPECT_EQ(choice.options.use_outer_gate, has('G'));
  }
  EXPECT_EQ(with_letters(options, "CLTG").parameters, full);
  EXPECT_NE(with_letters(options, "CLTG").words().find("as many as the full mixer"), std::string::npos);
}

TEST(Letters, OfTheLogSumExpAloneReadTheFreeEnergyAtBetaOne) {
  MixerOptions options = small_options();
  options.use_rope = false;
  const LetterChoice choice = with_letters(options, "L");
  FreeEnergyMixer mixer = random_mixer(choice.options);
  const at::Tensor x = random_tokens(2, 7, options);
  const auto p = mixer->named_parameters();
  const auto heads = [&](const std::string& name) {
    return at::linear(x, p[name + ".weight"], p[name + ".bias"]).unflatten(-1, {options.n_head, -1}).transpose(1, 2);
  };
  const at::Tensor energies =
      at::scaled_dot_product_attention(heads("W_q"), heads("W_k"), heads("W_v").exp(), {}, 0, true).log();
  EXPECT_TRUE(
      close(mixer(x), at::linear(energies.transpose(1, 2).flatten(2), p["W_o.weight"], p["W_o.bias"]), kFloat64));
}

TEST(Letters, ThatAreNoneOfTheEightAreRefused) {
  EXPECT_TRUE(fails_with("letters: expected one of \"\", \"C\", \"CL\", \"CLT\", \"CLTG\", \"L\", \"LT\", \"LTG\"",
                         [] { with_letters(small_options(), "GTLC"); }));
}

}  // namespace
}  // namespace fem::testing
