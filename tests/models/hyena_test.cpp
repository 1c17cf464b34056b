// Hyena by its definition, token by token.
#include <cmath>
#include <numbers>

#include "models/long_convolution.h"
#include "models/one_mixer.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::close;
using testing::OneMixer;
using testing::options_of;

// h [C] for the t-th token back.
at::Tensor filter_at(const OneMixer& mixer, int64_t t) {
  std::vector<double> cosines, sines;
  for (const double period : {4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0}) {
    cosines.push_back(std::cos(2 * std::numbers::pi * static_cast<double>(t) / period));
    sines.push_back(std::sin(2 * std::numbers::pi * static_cast<double>(t) / period));
  }
  const at::Tensor z = at::cat({at::tensor(cosines, at::kDouble), at::tensor(sines, at::kDouble)});
  const at::Tensor hidden = mixer.linear("filter.hidden", mixer.linear("filter.features", z).sin()).sin();
  const at::Tensor raw = at::mv(mixer.weight("filter.output.weight"), hidden);
  std::vector<double> window;
  for (int64_t c = 0; c < raw.size(0); ++c) {
    const double tau = 2 * std::pow(1024.0, static_cast<double>(c) / static_cast<double>(raw.size(0) - 1));
    window.push_back(std::exp(-static_cast<double>(t) / tau) * std::sqrt(1 - std::exp(-2 / tau)));
  }
  return raw * at::tensor(window, at::kDouble);
}

// x [T, D] -> y [T, D] of one sequence.
at::Tensor by_definition(const OneMixer& mixer, const at::Tensor& x) {
  const at::Tensor projected = mixer.linear("input", x), taps = mixer.weight("convolution.weight");
  const int64_t length = x.size(0);
  std::vector<at::Tensor> filter, inner, outer, rows;
  for (int64_t t = 0; t < length; ++t) {
    at::Tensor sum = at::zeros_like(projected[0]);
    for (int64_t j = std::max<int64_t>(0, 2 - t); j < 3; ++j) sum = sum + taps.select(1, j) * projected[t - 2 + j];
    const auto parts = sum.chunk(3);
    filter.push_back(filter_at(mixer, t));
    inner.push_back(parts[0] * parts[1]);
    outer.push_back(parts[2]);
  }
  for (int64_t t = 0; t < length; ++t) {
    at::Tensor sum = at::zeros_like(outer[0]);
    for (int64_t s = 0; s <= t; ++s) sum = sum + filter[t - s] * inner[s];
    rows.push_back(sum * outer[t]);
  }
  return mixer.linear("output", at::stack(rows));
}

TEST(Hyena, IsItsDefinitionInValuesAndGradients) {
  for (const int64_t length : {1, 2, 63, 111})
    for (const int64_t width : {16, 23}) {
      SCOPED_TRACE("length " + std::to_string(length) + ", width " + std::to_string(width));
      const OneMixer mixer(options_of(BlockMixer::kHyena, width, 1), 0);
      mixer.expect(at::randn({2, length, width}, at::kDouble), [&](const at::Tensor& x) {
        return at::stack({by_definition(mixer, x[0]), by_definition(mixer, x[1])});
      });
    }
}

TEST(Hyena, AFilterIsTheBeginningOfALongerOne) {
  const at::NoGradGuard no_gradients;
  const OneMixer mixer(options_of(BlockMixer::kHyena, 16, 1), 0);
  const FilterWeights w{{mixer.weight("filter.features.weight"), mixer.weight("filter.features.bias")},
                        {mixer.weight("filter.hidden.weight"), mixer.weight("filter.hidden.bias")},
                        mixer.weight("filter.output.weight")};
  EXPECT_TRUE(close(long_filter(w, 63), long_filter(w, 5000).slice(0, 0, 63), testing::kFloat64));
}

// The filter of a new layer neither swells nor dies out: its 2-norm is about one in every channel.
TEST(Hyena, AFilterStartsAtNormOne) {
  const at::NoGradGuard no_gradients;
  const BackboneOptions options = options_of(BlockMixer::kHyena, 128, 1);
  Backbone backbone(options);
  auto own = backbone->named_parameters();
  const auto weight = [&](const std::string& name) { return own["blocks.0.mixer.filter." + name]; };
  const FilterWeights w{{weight("features.weight"), weight("features.bias")},
                        {weight("hidden.weight"), weight("hidden.bias")},
                        weight("output.weight")};
  const at::Tensor norms = long_filter(w, 8192).square().sum(0).sqrt();
  EXPECT_NEAR(norms.mean().item<double>(), 1, 0.3);
  EXPECT_GT(norms.min().item<double>(), 0.1);
  EXPECT_LT(norms.max().item<double>(), 4);
}

TEST(Hyena, HasTheParametersOfAttention) {
  for (const int64_t width : {64, 128, 512})
    for (const bool bias : {false, true}) {
      BackboneOptions options = options_of(BlockMixer::kHyena, width, 4);
      options.mixer.bias = bias;
      const double expected = 4.0 * static_cast<double>(width * width);
      EXPECT_NEAR(static_cast<double>(testing::parameters_of(options)) / expected, 1, 0.02) << width << ", " << bias;
    }
}

TEST(Hyena, RefusesWhatItCannotBe) {
  using testing::fails_with;
  BackboneOptions options = options_of(BlockMixer::kHyena, 16, 2);
  options.mixer.causal = false;
  EXPECT_TRUE(fails_with("hyena: expected mixer.causal = true, got false", [&] { OneMixer(options, 0); }));
  EXPECT_TRUE(
      fails_with("hyena: expected n_embd of at least 8", [] { OneMixer(options_of(BlockMixer::kHyena, 4, 1), 0); }));
}

}  // namespace
}  // namespace fem
