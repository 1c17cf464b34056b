// Outputs and gradients by other implementations, in float64: the authors' layer (its float32 guards taken out), and
// plain ones of the other two dialects (tests/golden/README.md).
#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fem/fem.h"
#include "io/mixer_config.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;

class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Safetensors file = load_safetensors(std::string(FEM_GOLDEN_DIR "/") + GetParam() + ".safetensors");
    tensors = file.tensors;
    const auto config = nlohmann::json::parse(file.metadata.at("config"));
    options = mixer_options_from_json(config);
    if (!config.contains("dialect")) options.dialect = Dialect::kReference;
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
      // A bias may not matter, as a common shift of keys does not: then its gradient is a sum that cancels.
      const std::string& name = parameter.key();
      const at::Tensor& terms =
          name.ends_with(".bias") ? tensors.at("grad." + name.substr(0, name.size() - 4) + "weight") : expected;
      if (parameter->grad().defined())
        EXPECT_TRUE(close(parameter->grad(), expected, gradient, terms.abs().max().item<double>())) << name;
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

// Files of tests/golden, by folder: its own are of the authors' layer.
std::vector<std::string> goldens() {
  std::vector<std::string> names;
  const std::filesystem::path root(FEM_GOLDEN_DIR);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
    if (entry.path().extension() == ".safetensors")
      names.push_back(entry.path().lexically_relative(root).replace_extension().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Goldens, AreAllThere) {
  std::map<std::string, int> folders;
  for (const std::string& name : goldens()) ++folders[std::filesystem::path(name).parent_path()];
  EXPECT_EQ(folders[""], 23);
  EXPECT_GE(folders["paper"], 14);
  EXPECT_GE(folders["corrected"], 14);
}

INSTANTIATE_TEST_SUITE_P(Layer, Golden, ::testing::ValuesIn(goldens()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

}  // namespace
}  // namespace fem
