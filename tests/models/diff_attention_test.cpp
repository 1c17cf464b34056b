// Differential attention by its definition, token by token.
#include <cmath>

#include "models/one_mixer.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::OneMixer;
using testing::options_of;

// x [T, D] -> y [T, D] of one sequence, position 0 first.
at::Tensor by_definition(const OneMixer& mixer, const BackboneOptions& options, int64_t layer, const at::Tensor& x) {
  const int64_t heads = options.n_head, width = options.n_embd / heads, half = width / 2, length = x.size(0);
  const auto rotated = [&](const at::Tensor& rows) {  // [T, 2, H, K/2]
    std::vector<at::Tensor> turned;
    for (int64_t t = 0; t < length; ++t)
      for (int64_t pair = 0; pair < half / 2; ++pair) {
        const double angle = static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(pair) / half);
        const at::Tensor a = rows[t].select(-1, 2 * pair), b = rows[t].select(-1, 2 * pair + 1);
        turned.push_back(a * std::cos(angle) - b * std::sin(angle));
        turned.push_back(a * std::sin(angle) + b * std::cos(angle));
      }
    return at::stack(turned, -1).view({2, heads, length, half}).permute({2, 0, 1, 3});
  };
  const auto maps = [&](const char* name) { return rotated(mixer.linear(name, x).view({length, 2, heads, half})); };
  const at::Tensor query = maps("query"), key = maps("key");
  const at::Tensor value = mixer.linear("value", x).view({length, heads, width});
  const double offset = 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer));
  const auto term = [&](int64_t map) {
    return (mixer.weight("lambda_query")[map] * mixer.weight("lambda_key")[map]).sum().exp();
  };
  const at::Tensor lambda = term(0) - term(1) + offset;
  std::vector<at::Tensor> rows;
  for (int64_t t = 0; t < length; ++t)
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t last = options.mixer.causal ? t + 1 : length;
      const auto read = [&](int64_t map) {
        const at::Tensor keys = key.slice(0, 0, last).select(1, map).select(1, head);
        const at::Tensor score = at::mv(keys, query[t][map][head]) / std::sqrt(static_cast<double>(half));
        return at::mv(value.slice(0, 0, last).select(1, head).t(), score.softmax(0));
      };
      const at::Tensor o = read(0) - lambda * read(1);
      rows.push_back(o / (o.square().mean() + options.norm_eps).sqrt() * mixer.weight("norm.weight") * (1 - offset));
    }
  return mixer.linear("output", at::cat(rows).view({length, options.n_embd}));
}

TEST(DiffAttention, IsItsDefinitionInValuesAndGradients) {
  for (const int64_t layer : {0, 3})
    for (const int64_t length : {1, 63, 111}) {
      const BackboneOptions options = options_of(BlockMixer::kDiffAttention, 24, 3);
      const OneMixer mixer(options, layer);
      SCOPED_TRACE("layer " + std::to_string(layer) + ", length " + std::to_string(length));
      mixer.expect(at::randn({1, length, 24}, at::kDouble),
                   [&](const at::Tensor& x) { return by_definition(mixer, options, layer, x[0]).unsqueeze(0); });
    }
}

TEST(DiffAttention, AnEncoderIsItsDefinition) {
  BackboneOptions options = options_of(BlockMixer::kDiffAttention, 16, 2);
  options.mixer.causal = false;
  const OneMixer mixer(options, 1);
  mixer.expect(at::randn({1, 13, 16}, at::kDouble),
               [&](const at::Tensor& x) { return by_definition(mixer, options, 1, x[0]).unsqueeze(0); });
}

TEST(DiffAttention, HasTheParametersOfAttention) {
  for (const int64_t width : {64, 128, 512})
    for (const bool bias : {false, true}) {
      BackboneOptions options = options_of(BlockMixer::kDiffAttention, width, 4);
      options.mixer.bias = bias;
      const double expected = 4.0 * static_cast<double>(width * width);
      EXPECT_NEAR(static_cast<double>(testing::parameters_of(options)) / expected, 1, 0.02) << width << ", " << bias;
    }
}

TEST(DiffAttention, RefusesHeadsThatCannotBeHalvedAndTurned) {
  EXPECT_TRUE(testing::fails_with("diff_attention: expected n_embd to be a multiple of four times n_head, got 18 and 3",
                                  [] { OneMixer(options_of(BlockMixer::kDiffAttention, 18, 3), 0); }));
  BackboneOptions options = options_of(BlockMixer::kDiffAttention, 16, 2);
  options.mixer.window = 3;
  EXPECT_TRUE(
      testing::fails_with("diff_attention has no mixer option window; remove it", [&] { OneMixer(options, 0); }));
}

}  // namespace
}  // namespace fem
