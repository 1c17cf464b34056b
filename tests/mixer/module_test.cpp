#include <ATen/ATen.h>

#include <sstream>

#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::random_mixer;
using testing::random_tokens;
using testing::small_options;

class InitialValues : public ::testing::TestWithParam<Dialect> {};
INSTANTIATE_TEST_SUITE_P(Dialect, InitialValues, ::testing::ValuesIn(testing::all_dialects()),
                         [](const auto& info) { return spelled(info.param); });

// Those of the authors' layer; only the paper's conditioner speaks from the start (K).
TEST_P(InitialValues, AreDrawnAsTheDialectSays) {
  at::manual_seed(1);
  MixerOptions options = small_options();
  options.dialect = GetParam();
  options.n_embd = 256;
  options.beta_max_init = 1.5;
  FreeEnergyMixer mixer(options);
  for (const auto& parameter : mixer->named_parameters()) {
    const std::string& name = parameter.key();
    const at::Tensor& value = parameter.value();
    EXPECT_TRUE(value.requires_grad()) << name;
    EXPECT_EQ(value.scalar_type(), at::kFloat) << name;
    const auto is_all = [&](double constant) { return at::equal(value, at::full_like(value, constant)); };
    const bool is_norm = name.find("norm.") != std::string::npos || name.find("ln.") != std::string::npos;
    if (name == "_beta_param")
      EXPECT_TRUE(is_all(1.5));
    else if (name.ends_with("out_proj") && GetParam() != Dialect::kPaper)
      EXPECT_TRUE(is_all(0));
    else if (name.ends_with(".bias"))
      EXPECT_TRUE(is_all(0)) << name;
    else if (is_norm)
      EXPECT_TRUE(is_all(1)) << name;
    else {
      EXPECT_NEAR(value.std().item<double>(), 0.02, 0.002) << name;
      EXPECT_NEAR(value.mean().item<double>(), 0, 0.002) << name;
    }
  }
}

TEST(FreeEnergyMixerModule, RegistersWhatItDeclaresInThatOrder) {
  MixerOptions options = small_options();
  options.causal = false;
  options.conv_bidirectional = true;
  FreeEnergyMixer mixer(options);
  const auto specs = mixer_parameters(options);
  const auto registered = mixer->named_parameters();
  ASSERT_EQ(registered.size(), specs.size());
  for (const auto& spec : specs) EXPECT_EQ(registered[spec.name].sizes(), at::IntArrayRef(spec.shape)) << spec.name;
  EXPECT_EQ(registered["tdc.bwd.out_proj"].size(0), *options.conv_hidden / 2);
}

// Weights travel as lists in this order, and one seed gives the same weights, as long as it stays.
TEST(FreeEnergyMixerModule, DeclaresItsPartsInTheAuthorsOrder) {
  MixerOptions options = small_options();
  options.bias = options.use_conv = false;
  const auto names_of = [&](PriorType prior, Dialect dialect = Dialect::kCorrected) {
    options.prior_type = prior;
    options.dialect = dialect;
    options.mamba_interact = prior == PriorType::kMamba;
    std::string names;
    for (const ParameterSpec& spec : mixer_parameters(options)) names += " " + spec.name;
    return names;
  };
  const std::string first = " W_v.weight W_o.weight", last = " W_lambda.weight W_gate.weight _beta_param";
  for (const PriorType prior : {PriorType::kSoftmax, PriorType::kLinear, PriorType::kRnnSoftmax})
    EXPECT_EQ(names_of(prior), first + " W_q.weight W_k.weight" + last);
  EXPECT_EQ(names_of(PriorType::kRnnSoftmax, Dialect::kPaper), first + " W_k.weight" + last);
  EXPECT_EQ(names_of(PriorType::kGla), first + " W_q.weight W_k.weight W_decay.weight" + last);
  EXPECT_EQ(names_of(PriorType::kRnnDecay), first + " W_decay.weight" + last);
  EXPECT_EQ(names_of(PriorType::kMamba), first + " W_p.weight A_log D_diag W_interact" + last);
}

TEST(FreeEnergyMixerModule, HasNoParameterForWhatIsSwitchedOff) {
  MixerOptions options = small_options();
  options.use_lse = options.use_temperature = options.use_outer_gate = options.use_conv = options.bias = false;
  std::set<std::string> names;
  for (const auto& spec : mixer_parameters(options)) names.insert(spec.name);
  EXPECT_EQ(names, (std::set<std::string>{"W_v.weight", "W_o.weight", "W_q.weight", "W_k.weight", "_beta_param"}));
  options.use_conv = true;
  options.conv_norm_first = false;
  for (const auto& spec : mixer_parameters(options)) EXPECT_EQ(spec.name.find("norm"), std::string::npos);
}

TEST(FreeEnergyMixerModule, ConvertsWithoutLosingItsWeights) {
  FreeEnergyMixer mixer(small_options());
  mixer->to(at::kDouble);
  const at::Tensor x = random_tokens(2, 5, mixer->options).requires_grad_();
  mixer->forward(x).sum().backward();
  EXPECT_EQ(mixer->weights.value.weight.scalar_type(), at::kDouble);
  EXPECT_TRUE(mixer->named_parameters()["W_v.weight"].grad().defined());
  EXPECT_TRUE(mixer->weights.value.weight.is_same(mixer->named_parameters()["W_v.weight"]));
}

TEST(FreeEnergyMixerModule, ACloneComputesTheSameAndSharesNothing) {
  FreeEnergyMixer mixer = random_mixer(small_options());
  mixer->eval();
  mixer->named_parameters()["W_k.weight"].set_requires_grad(false);
  const auto copy = std::dynamic_pointer_cast<FreeEnergyMixerImpl>(mixer->clone());
  const at::Tensor x = random_tokens(2, 5, mixer->options);
  const at::Tensor before = mixer->forward(x);
  EXPECT_TRUE(at::equal(copy->forward(x), before));
  EXPECT_FALSE(copy->is_training());
  EXPECT_FALSE(copy->named_parameters()["W_k.weight"].requires_grad());
  const at::NoGradGuard no_gradients;
  for (at::Tensor& parameter : copy->parameters()) parameter.add_(1);
  EXPECT_TRUE(at::equal(mixer->forward(x), before));
  EXPECT_FALSE(at::equal(copy->forward(x), before)) << "the clone's weights are not its parameters";
}

struct Parent : torch::nn::Cloneable<Parent> {
  explicit Parent(const MixerOptions& options) : options(options) { reset(); }
  void reset() override { mixer = register_module("mixer", FreeEnergyMixer(options)); }
  MixerOptions options;
  FreeEnergyMixer mixer{nullptr};
};

TEST(FreeEnergyMixerModule, CanBeClonedInsideAModel) {
  Parent parent(small_options());
  parent.mixer->to(at::kDouble);
  const auto copy = std::dynamic_pointer_cast<Parent>(parent.clone());
  const at::Tensor x = random_tokens(1, 4, parent.options);
  EXPECT_TRUE(at::equal(copy->mixer(x), parent.mixer(x)));
  const at::NoGradGuard no_gradients;
  copy->named_parameters()["mixer.W_o.bias"].add_(1);
  EXPECT_TRUE(at::allclose(copy->mixer(x), parent.mixer(x) + 1));
}

TEST(FreeEnergyMixerModule, DropsOutOnlyInTraining) {
  MixerOptions options = small_options();
  FreeEnergyMixer plain = random_mixer(options);
  const auto mixer = std::dynamic_pointer_cast<FreeEnergyMixerImpl>(plain->clone());
  mixer->options.dropout = 0.5;
  const at::Tensor x = random_tokens(2, 5, options);
  EXPECT_FALSE(at::equal(mixer->forward(x), mixer->forward(x)));
  mixer->eval();
  EXPECT_TRUE(at::equal(mixer->forward(x), plain->forward(x)));
}

TEST(FreeEnergyMixerModule, PrintsWhatDiffersFromTheDefaults) {
  MixerOptions options = small_options();
  options.dialect = Dialect::kReference;
  std::ostringstream text;
  FreeEnergyMixer(options)->pretty_print(text);
  EXPECT_EQ(text.str(), "fem::FreeEnergyMixer(n_embd=16, n_head=2, conv_hidden=6, dialect=\"reference\")");
}

}  // namespace
}  // namespace fem
