// newton, newton_light, linear_descent and gated_descent: against goldens, and where they must agree with each other.
#include <cmath>

#include "models/energy_golden.h"
#include "models/one_mixer.h"
#include "support/error_text.h"

namespace fem::testing {
namespace {

struct GoldenCase {
  std::string name;
  BlockMixer mixer;
  std::optional<Curvature> curvature = {};
  double rho = 0;
};

// Its weights in the order of the mixer's parameters, with what their gradients are called in the goldens.
struct GoldenLayer {
  BackboneOptions options = options_of(BlockMixer::kNewton, 8, 2);
  std::vector<at::Tensor> weights;
  std::vector<std::string> gradients{"Wq", "Wk", "Wv", "Wo"};

  explicit GoldenLayer(const GoldenCase& c) {
    options.block_mixer = c.mixer;
    options.curvature = c.curvature;
    options.rho = c.rho;
    options.mixer.bias = false;
    const bool rotates = c.mixer == BlockMixer::kNewton || c.mixer == BlockMixer::kNewtonLight;
    if (rotates) options.mixer.use_rope = false;
    const auto of = energy_goldens();
    for (const std::string& name : gradients) weights.push_back(of.at(name).t().contiguous());
    if (rotates) {
      weights.push_back(of.at("alpha")[0] * std::sqrt(4.0));  // alpha = c / sqrt(K)
      gradients.emplace_back("alpha");
    } else if (c.mixer == BlockMixer::kGatedDescent) {
      weights.push_back(of.at("gamma")[0].logit());
    }
    for (at::Tensor& weight : weights) weight.requires_grad_();
    token_mixer_of(c.mixer).check(options);
  }

  at::Tensor operator()(const at::Tensor& x) const {
    return token_mixer_of(options.block_mixer).bind(options, 0, weights)(x, {}, nullptr, false);
  }
};

TEST(DescentMixers, AreTheGoldensWithAllGradients) {
  const auto of = energy_goldens();
  for (const GoldenCase& c : std::vector<GoldenCase>{
           {"n2K_rho0", BlockMixer::kNewton},
           {"n2K_rho05", BlockMixer::kNewton, Curvature::kKey, 0.5},
           {"n2V", BlockMixer::kNewton, Curvature::kValue},
           {"light_diag", BlockMixer::kNewtonLight},
           {"light_iso", BlockMixer::kNewtonLight, Curvature::kIsotropic},
           {"linear", BlockMixer::kLinearDescent},
           {"linear_gated", BlockMixer::kGatedDescent},
       }) {
    SCOPED_TRACE(c.name);
    const GoldenLayer layer(c);
    const at::Tensor x = of.at("X").unsqueeze(0).requires_grad_(), y = layer(x);
    EXPECT_TRUE(close(y[0], of.at("out_" + c.name), kFloat64));
    std::vector<at::Tensor> inputs{x};
    inputs.insert(inputs.end(), layer.weights.begin(), layer.weights.begin() + layer.gradients.size());
    const auto found = torch::autograd::grad({y}, inputs, {of.at("dO").unsqueeze(0)});
    const auto golden = [&](const std::string& name) { return of.at("grad_" + c.name + "_" + name); };
    EXPECT_TRUE(close(found[0][0], golden("X"), kFloat64));
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(close(found[i + 1].t(), golden(layer.gradients[i]), kFloat64)) << layer.gradients[i];
    if (layer.gradients.size() > 4) {  // d/dalpha = sqrt(K) d/dc
      EXPECT_TRUE(close(found[5] * std::sqrt(4.0), golden("alpha")[0], kFloat64));
    }
  }
}

TEST(DescentMixers, OfOneChannelAHeadAllOfValuesAgree) {
  // A head of one channel needs no rotation; its n_embd is no multiple of twice n_head, so that weights are bound as
  // they are.
  const auto layer = [](BlockMixer mixer, Curvature curvature) {
    BackboneOptions options = options_of(mixer, 4, 4);
    options.curvature = curvature;
    options.mixer.bias = false;
    options.mixer.use_rope = false;
    at::manual_seed(3);
    std::vector<at::Tensor> weights;
    for (int i = 0; i < 4; ++i) weights.push_back(at::randn({4, 4}, at::kDouble));
    weights.push_back(at::randn({4}, at::kDouble));
    return token_mixer_of(mixer).bind(options, 0, weights)(at::randn({2, 7, 4}, at::kDouble), {}, nullptr, false);
  };
  const at::Tensor full = layer(BlockMixer::kNewton, Curvature::kValue);
  EXPECT_TRUE(close(layer(BlockMixer::kNewtonLight, Curvature::kDiagonal), full, kFloat64));
  EXPECT_TRUE(close(layer(BlockMixer::kNewtonLight, Curvature::kIsotropic), full, kFloat64));
}

TEST(DescentMixers, StartAsAttention) {
  for (const BlockMixer mixer : {BlockMixer::kNewton, BlockMixer::kNewtonLight}) {
    const BackboneOptions options = options_of(mixer, 8, 2), plain = options_of(BlockMixer::kAttention, 8, 2);
    at::manual_seed(3);
    std::vector<at::Tensor> weights;
    for (const ParameterSpec& spec : token_mixer_of(mixer).parameters(options, 0))
      weights.push_back(spec.name == "curvature_scale" ? at::zeros(spec.shape, at::kDouble)
                                                       : at::randn(spec.shape, at::kDouble));
    const ParameterSpec last = token_mixer_of(mixer).parameters(options, 0).back();
    EXPECT_EQ(last.name, "curvature_scale");
    EXPECT_EQ(last.value, 0.0);
    const at::Tensor x = at::randn({2, 9, 8}, at::kDouble);
    const auto read = [&](const BackboneOptions& o, const std::vector<at::Tensor>& w) {
      return token_mixer_of(o.block_mixer).bind(o, 0, w)(x, {}, nullptr, false);
    };
    EXPECT_TRUE(close(read(options, weights), read(plain, {weights.begin(), weights.end() - 1}), kFloat64));
  }
}

// o_t = sum_{i <= t} g^(t - i) (q_t.k_i) v_i / sqrt(K), over more tokens than a chunk has.
TEST(DescentMixers, OfLinearEnergiesAreMaskedMatrices) {
  for (const BlockMixer mixer : {BlockMixer::kLinearDescent, BlockMixer::kGatedDescent}) {
    SCOPED_TRACE(spelled(mixer));
    const OneMixer one(options_of(mixer, 12, 2), 0);
    const at::Tensor x = at::randn({2, 130, 12}, at::kDouble);
    one.expect(x, [&](const at::Tensor& y) {
      const auto heads = [&](const char* name) { return one.linear(name, y).unflatten(2, {2, -1}).transpose(1, 2); };
      const at::Tensor token = at::arange(130, at::kDouble), distance = (token.unsqueeze(1) - token).clamp_min(0);
      at::Tensor scores = at::matmul(heads("query"), heads("key").transpose(2, 3)).tril() / std::sqrt(6.0);
      if (mixer == BlockMixer::kGatedDescent)
        scores = scores * (at::log_sigmoid(one.weight("fading")).view({2, 1, 1}) * distance).exp();
      return one.linear("output", at::matmul(scores, heads("value")).transpose(1, 2).flatten(2));
    });
  }
}

TEST(DescentMixers, WithoutFadingGatedIsLinear) {
  const OneMixer gated(options_of(BlockMixer::kGatedDescent, 8, 2), 0);
  const at::NoGradGuard no_gradients;
  gated.weight("fading").fill_(40.0);
  std::vector<at::Tensor> weights;
  for (const ParameterSpec& spec :
       token_mixer_of(BlockMixer::kLinearDescent).parameters(options_of(BlockMixer::kLinearDescent, 8, 2), 0))
    weights.push_back(gated.weight(spec.name));
  const at::Tensor x = at::randn({2, 70, 8}, at::kDouble);
  const BackboneOptions options = options_of(BlockMixer::kLinearDescent, 8, 2);
  EXPECT_TRUE(close(gated(x), token_mixer_of(options.block_mixer).bind(options, 0, weights)({x}, {}, nullptr, false),
                    kFloat64));
}

// The curvatures that are not the default: the others stream in the tests of every mixer.
TEST(DescentMixers, AnySplitIsTheWhole) {
  for (const auto& [mixer, curvature] :
       {std::pair{BlockMixer::kNewton, Curvature::kValue}, {BlockMixer::kNewtonLight, Curvature::kIsotropic}}) {
    BackboneOptions options = options_of(mixer, 12, 2);
    options.curvature = curvature;
    const OneMixer one(options, 0);
    const at::NoGradGuard no_gradients;
    const at::Tensor x = at::randn({2, 40, 12}, at::kDouble), whole = one(x);
    MixerState state;
    std::vector<at::Tensor> parts;
    int64_t at = 0;
    for (const int64_t length : {1, 2, 30, 7}) {
      parts.push_back(one(x.narrow(1, at, length), {}, &state));
      at += length;
    }
    EXPECT_TRUE(close(at::cat(parts, 1), whole, kFloat64));
  }
}

TEST(DescentMixers, ErrorsNameTheOptionAndTheRemedy) {
  const auto fails = [](const std::string& text, BlockMixer mixer, std::optional<Curvature> curvature, double rho) {
    BackboneOptions options = options_of(mixer, 8, 2);
    options.curvature = curvature;
    options.rho = rho;
    EXPECT_TRUE(fails_with(text, [&] { Backbone{options}; }));
  };
  fails(
      "newton: expected curvature to be \"key\" or \"value\", got \"diagonal\"; block_mixer = \"newton_light\" has it",
      BlockMixer::kNewton, Curvature::kDiagonal, 0);
  fails("newton_light: expected curvature to be \"diagonal\" or \"isotropic\", got \"key\"", BlockMixer::kNewtonLight,
        Curvature::kKey, 0);
  fails("newton: expected rho = 0 with curvature \"value\", got 1", BlockMixer::kNewton, Curvature::kValue, 1);
  fails("newton_light: expected rho = 0, got 1", BlockMixer::kNewtonLight, {}, 1);
  fails("block_mixer attention has no curvature and no rho; remove them", BlockMixer::kAttention, Curvature::kKey, 0);
}

}  // namespace
}  // namespace fem::testing
