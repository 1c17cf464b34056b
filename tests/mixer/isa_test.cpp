// The whole layer on the kernels of every instruction set, every prior in every dialect.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

class LayerOnIsa : public ::testing::TestWithParam<std::tuple<cpu::Isa, PriorType, Dialect>> {
 protected:
  LayerOnIsa() : isa_(std::get<0>(GetParam())) {
    at::manual_seed(9);
    std::tie(std::ignore, options.prior_type, options.dialect) = GetParam();
  }
  MixerOptions options = small_options();

 private:
  ScopedIsa isa_;
  PoisonedMemory poison_;
};
std::string label(const ::testing::TestParamInfo<LayerOnIsa::ParamType>& info) {
  const auto& [isa, prior, dialect] = info.param;
  return std::string(cpu::name_of(isa)) + "_" + spelled(prior) + "_" + spelled(dialect);
}
INSTANTIATE_TEST_SUITE_P(Isa, LayerOnIsa,
                         ::testing::Combine(::testing::ValuesIn(cpu::available_isas()),
                                            ::testing::ValuesIn(all_priors()), ::testing::ValuesIn(all_dialects())),
                         label);

// Output and input gradient, with a padded row.
struct Pass {
  Pass(FreeEnergyMixer mixer, const at::Tensor& tokens, const at::Tensor& seed) {
    const at::Tensor x = tokens.detach().clone().requires_grad_();
    const at::Tensor mask = at::arange(tokens.size(1)).lt(at::tensor({tokens.size(1), int64_t{40}}).unsqueeze(1));
    y = mixer->forward(x, Batch{mask, {}});
    (y * seed).sum().backward();
    gradient = x.grad();
  }
  at::Tensor y, gradient;
};

TEST_P(LayerOnIsa, AgreesWithTheDefinitionInFloat64) {
  for (const bool causal : {true, false}) {
    options.causal = causal;
    const FreeEnergyMixer mixer = random_mixer(options, at::kFloat);
    const auto exact = std::dynamic_pointer_cast<FreeEnergyMixerImpl>(mixer->clone());
    exact->to(at::kDouble);
    const at::Tensor x = random_tokens(2, 75, options, at::kFloat), seed = at::randn_like(x);
    const Pass ours(mixer, x, seed), expected(FreeEnergyMixer(exact), x.to(at::kDouble), seed.to(at::kDouble));
    EXPECT_TRUE(close(ours.y, expected.y, kFloat32Layer));
    EXPECT_TRUE(close(ours.gradient, expected.gradient, kFloat32LayerGradient));
  }
}

TEST_P(LayerOnIsa, StreamsWhatItComputesAtOnce) {
  const at::NoGradGuard no_gradients;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const FreeEnergyMixer mixer = random_mixer(options, dtype);
    const at::Tensor x = random_tokens(2, 75, options, dtype), expected = mixer(x);
    MixerState state;
    std::vector<at::Tensor> parts{mixer(x.slice(1, 0, 68), state)};
    for (int64_t t = 68; t < 75; ++t) parts.push_back(mixer(x.slice(1, t, t + 1), state));
    EXPECT_TRUE(close(at::cat(parts, 1), expected, dtype == at::kFloat ? kFloat32Layer : kBfloat16Layer));
  }
}

}  // namespace
}  // namespace fem::testing
