// Outputs and gradients of the authors' layer (float64, its float32 guards taken out).
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "fem/fem.h"
#include "io/mixer_config.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Safetensors file = load_safetensors(std::string(FEM_GOLDEN_DIR "/") + GetParam() + ".safetensors");
    tensors = file.tensors;
    options = mixer_options_from_json(nlohmann::json::parse(file.metadata.at("config")));
    options.dialect = Dialect::kReference;
  }

  void agrees(at::ScalarType dtype, testing::Tolerance forward, testing::Tolerance gradient) {
    FreeEnergyMixer mixer(options);
    mixer->to(dtype);
    for (auto& parameter : mixer->named_parameters()) {
      const at::NoGradGuard no_gradients;
      parameter->copy_(tensors.at("param." + parameter.key()));
    }
    const at::Tensor x = tensors.at("x").to(dtype).requires_grad_();
    const at::Tensor y = mixer(x);
    EXPECT_TRUE(close(y, tensors.at("y"), forward));
    (y * tensors.at("w").to(dtype)).sum().backward();
    EXPECT_TRUE(close(x.grad(), tensors.at("grad.x"), gradient));
    for (const auto& parameter : mixer->named_parameters()) {
      const at::Tensor& expected = tensors.at("grad." + parameter.key());
      if (parameter->grad().defined())
        EXPECT_TRUE(close(parameter->grad(), expected, gradient)) << parameter.key();
      else  // _beta_param exists even where nothing reads it
        EXPECT_EQ(expected.abs().max().item<double>(), 0) << parameter.key();
    }
  }

  std::map<std::string, at::Tensor> tensors;
  MixerOptions options;
};

TEST_P(Golden, HasTheAuthorsParameterNamesAndShapes) {
  std::map<std::string, std::vector<int64_t>> expected, declared;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with("param.")) expected[name.substr(6)] = tensor.sizes().vec();
  for (const auto& spec : mixer_parameters(options)) declared[spec.name] = spec.shape;
  EXPECT_EQ(declared, expected);
}

TEST_P(Golden, AgreesInFloat64) { agrees(at::kDouble, testing::kFloat64, testing::kFloat64); }

TEST_P(Golden, AgreesInFloat32) { agrees(at::kFloat, testing::kFloat32Layer, testing::kFloat32LayerGradient); }

INSTANTIATE_TEST_SUITE_P(Authors, Golden,
                         ::testing::Values("gla", "gla_mean_only", "gla_no_gate", "linear", "linear_encoder",
                                           "linear_no_temperature", "mamba", "mamba_mean_only", "mamba_unnormalized",
                                           "rnn_softmax", "rnn_softmax_mean_only", "rnn_softmax_narrow", "softmax",
                                           "softmax_balanced", "softmax_encoder", "softmax_explicit_dims",
                                           "softmax_mean_only", "softmax_no_bias", "softmax_no_conv", "softmax_no_gate",
                                           "softmax_no_rope", "softmax_no_temperature", "softmax_plain"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fem
