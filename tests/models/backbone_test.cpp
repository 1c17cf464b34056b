// A backbone as what it is for other models than decoders: encoders, padding, packed sequences, states, parameters.
#include "fem/backbone.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/small_models.h"
#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;
using testing::every_mixer;
using testing::fails_with;
using testing::kFloat64;
using testing::MixerChoice;

constexpr int64_t kWidth = 16;

BackboneOptions small_options(const MixerChoice& choice, bool causal) {
  BackboneOptions options = testing::random_model(choice, 4)->options;
  options.mixer.causal = causal;
  options.mixer.conv_bidirectional = !causal && choice.block_mixer == BlockMixer::kFem;
  return options;
}

// All parameters random, in float64.
Backbone random_backbone(const BackboneOptions& options) {
  const at::NoGradGuard no_gradients;
  at::manual_seed(7);
  Backbone backbone(options);
  backbone->to(at::kDouble);
  for (at::Tensor& parameter : backbone->parameters()) parameter.normal_(0.0, 0.5);
  return backbone;
}

at::Tensor random_rows(int64_t batch, int64_t length) {
  at::manual_seed(3);
  return at::randn({batch, length, kWidth}, at::kDouble);
}

class BackboneOf : public ::testing::TestWithParam<std::tuple<MixerChoice, bool>> {
 protected:
  Backbone backbone = random_backbone(small_options(std::get<0>(GetParam()), std::get<1>(GetParam())));
};
std::vector<std::tuple<MixerChoice, bool>> every_backbone() {
  std::vector<std::tuple<MixerChoice, bool>> choices;
  for (const MixerChoice& choice : every_mixer())
    for (const bool causal : {true, false})
      if (causal || !testing::only_causal(choice)) choices.emplace_back(choice, causal);
  return choices;
}
INSTANTIATE_TEST_SUITE_P(Every, BackboneOf, ::testing::ValuesIn(every_backbone()), [](const auto& info) {
  return testing::name_of(std::get<0>(info.param)) + (std::get<1>(info.param) ? "_causal" : "_encoder");
});

TEST_P(BackboneOf, ATokenSeesLaterOnesInAnEncoderOnly) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = random_rows(2, 11);
  at::Tensor changed = x.clone();
  changed.slice(1, 8) += 1;
  const at::Tensor before = backbone(x).slice(1, 0, 8), after = backbone(changed).slice(1, 0, 8);
  EXPECT_EQ(close(before, after, kFloat64), std::get<1>(GetParam()));
}

TEST_P(BackboneOf, PaddingChangesNoRealToken) {
  for (const bool left : {true, false}) {
    const at::Tensor x = random_rows(2, 10).requires_grad_();
    at::Tensor mask = at::ones({2, 10}, at::kBool);
    mask[1].slice(0, left ? 0 : 6, left ? 4 : 10).fill_(false);
    const auto real = [&](const at::Tensor& rows) { return rows.slice(0, 1, 2).slice(1, left ? 4 : 0, left ? 10 : 6); };
    const at::Tensor y = backbone(x, Batch{.mask = mask});
    real(y).square().sum().backward();
    EXPECT_TRUE(close(real(y), backbone(real(x)), kFloat64)) << (left ? "left" : "right");
    EXPECT_TRUE(close(y.slice(0, 0, 1), backbone(x.slice(0, 0, 1)), kFloat64)) << (left ? "left" : "right");
    EXPECT_TRUE(x.grad().masked_select(mask.logical_not().unsqueeze(-1)).eq(0).all().item<bool>());
  }
}

TEST_P(BackboneOf, APackedSequenceNeverSeesItsNeighbour) {
  // The second has rows of one length, which are run as a batch.
  for (const std::vector<int64_t>& borders : {std::vector<int64_t>{0, 7, 14, 15, 15, 30}, {0, 10, 20, 30}}) {
    const at::Tensor x = random_rows(1, 30).requires_grad_();
    const at::Tensor packed = backbone(x, Batch{.cu_seqlens = at::tensor(borders)});
    packed.slice(1, 0, borders[1]).square().sum().backward();
    EXPECT_TRUE(x.grad().slice(1, borders[1]).eq(0).all().item<bool>());
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      const int64_t length = borders[i + 1] - borders[i];
      if (length == 0) continue;
      const at::Tensor alone = backbone(x.narrow(1, borders[i], length));
      EXPECT_TRUE(close(packed.narrow(1, borders[i], length), alone, kFloat64)) << "sequence " << i;
    }
  }
}

TEST_P(BackboneOf, HasTheParametersItDeclares) {
  const std::vector<ParameterSpec> specs = backbone_parameters(backbone->options);
  const auto named = backbone->named_parameters();
  ASSERT_EQ(specs.size(), named.size());
  for (const ParameterSpec& spec : specs) EXPECT_EQ(named[spec.name].sizes(), at::IntArrayRef(spec.shape)) << spec.name;
}

TEST_P(BackboneOf, ATraceNamesWhatAPassMakes) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = random_rows(1, 9);
  const Trace made = backbone->trace(x);
  std::vector<std::string> names;
  for (const auto& [name, value] : made) names.push_back(name);
  const std::vector<std::string> expected{
      "blocks.0.mixer_norm", "blocks.0.mixer", "blocks.0.mlp", "blocks.1.mixer_norm",
      "blocks.1.mixer",      "blocks.1.mlp",   "norm"};
  EXPECT_EQ(names, expected);
  EXPECT_TRUE(made.back().second.equal(backbone(x)));
}

TEST(Backbones, AStateNeedsACausalMixer) {
  const at::NoGradGuard no_gradients;
  for (const MixerChoice& choice : {every_mixer()[0], every_mixer()[1]}) {
    BackboneState state;
    Backbone encoder = random_backbone(small_options(choice, false));
    EXPECT_TRUE(fails_with("backbone: a state needs mixer.causal = true, because an encoder's early tokens see later",
                           [&] { encoder(random_rows(1, 4), state); }));
    Backbone decoder = random_backbone(small_options(choice, true));
    const at::Tensor x = random_rows(2, 9), whole = decoder(x);
    const at::Tensor first = decoder(x.slice(1, 0, 4), state), second = decoder(x.slice(1, 4), state);
    EXPECT_TRUE(close(at::cat({first, second}, 1), whole, kFloat64));
  }
}

TEST(Backbones, WrongInputsAreRefused) {
  Backbone backbone = random_backbone(small_options(every_mixer()[0], false));
  const at::Tensor x = random_rows(2, 5);
  EXPECT_TRUE(fails_with("backbone: expected x of shape [B, T, D=16], got [2, 5]", [&] { backbone(x.select(2, 0)); }));
  EXPECT_TRUE(fails_with("backbone: expected x as Double on cpu like the weights, got Float",
                         [&] { backbone(x.to(at::kFloat)); }));
  EXPECT_TRUE(fails_with("backbone: expected mask as bool [B=2, T=5] on cpu (true = a real token), got Bool [2, 4]",
                         [&] { backbone(x, Batch{.mask = at::ones({2, 4}, at::kBool)}); }));
  EXPECT_TRUE(fails_with("backbone: cu_seqlens needs all sequences packed in one row",
                         [&] { backbone(x, Batch{.cu_seqlens = at::tensor({0, 5})}); }));
  BackboneOptions options = backbone->options;
  options.mixer.window = 3;
  EXPECT_TRUE(fails_with("plain attention has no mixer option window; remove it", [&] { Backbone{options}; }));
  options = backbone->options;
  options.norm_eps = 0;
  EXPECT_TRUE(fails_with("backbone: expected a positive norm_eps, got 0", [&] { Backbone{options}; }));
}

// Attention, residual, MLP and norms of a block by their formulas.
class ByFormula {
 public:
  ByFormula(Backbone& backbone) : options_(backbone->options), parameters_(backbone->named_parameters()) {}

  at::Tensor operator()(at::Tensor x, const at::Tensor& mask) {
    for (int64_t layer = 0; layer < options_.n_layer; ++layer) {
      prefix_ = "blocks." + std::to_string(layer) + ".";
      x = x + attention(normed(x, "mixer_norm.weight"), mask);
      const at::Tensor u = normed(x, "mlp_norm.weight");
      const at::Tensor up = at::matmul(u, weight("mlp.up").t());
      const at::Tensor hidden = options_.mlp == MlpType::kGelu ? 0.5 * up * (1 + at::erf(up / std::sqrt(2.0)))
                                                               : at::silu(at::matmul(u, weight("mlp.gate").t())) * up;
      x = x + at::matmul(hidden, weight("mlp.down").t());
    }
    prefix_.clear();
    return normed(x, "norm.weight");
  }

 private:
  at::Tensor weight(const std::string& name) { return parameters_[prefix_ + name + ".weight"]; }

  at::Tensor normed(const at::Tensor& x, const std::string& name) {
    return x / (x.square().mean(-1, true) + options_.norm_eps).sqrt() * parameters_[prefix_ + name];
  }

  // [B, H, T, K]
  at::Tensor heads(const at::Tensor& x, const std::string& name) {
    const at::Tensor y = at::matmul(x, weight("mixer." + name).t()) + parameters_[prefix_ + "mixer." + name + ".bias"];
    return y.unflatten(-1, {options_.n_head, -1}).transpose(1, 2);
  }

  at::Tensor attention(const at::Tensor& x, const at::Tensor& mask) {
    const int64_t pairs = options_.n_embd / options_.n_head / 2;
    const at::Tensor place = (mask.cumsum(1) - 1).to(at::kDouble).view({-1, 1, mask.size(1), 1});
    const at::Tensor angle = place * at::pow(10000.0, -at::arange(pairs, at::kDouble) / static_cast<double>(pairs));
    const auto rotated = [&](const at::Tensor& y) {
      const at::Tensor a = y.slice(3, 0, {}, 2), b = y.slice(3, 1, {}, 2);
      return at::stack({a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()}, -1).flatten(3);
    };
    const at::Tensor query = rotated(heads(x, "query")), key = rotated(heads(x, "key"));
    at::Tensor score = at::matmul(query, key.transpose(2, 3)) / std::sqrt(2.0 * static_cast<double>(pairs));
    score = score.masked_fill(mask.logical_not().view({-1, 1, 1, mask.size(1)}), -INFINITY);
    if (options_.mixer.causal) score = score.masked_fill(at::ones_like(score, at::kBool).triu(1), -INFINITY);
    const at::Tensor read = at::matmul(score.softmax(-1), heads(x, "value")).transpose(1, 2).flatten(2);
    return at::matmul(read, weight("mixer.output").t()) + parameters_[prefix_ + "mixer.output.bias"];
  }

  const BackboneOptions options_;
  torch::OrderedDict<std::string, at::Tensor> parameters_;
  std::string prefix_;
};

TEST(AttentionBackbones, AreTheFormulas) {
  for (const bool causal : {true, false}) {
    Backbone backbone = random_backbone(small_options(every_mixer()[0], causal));
    ByFormula formula(backbone);
    const at::Tensor x = random_rows(2, 9);
    at::Tensor mask = at::ones({2, 9}, at::kBool);
    EXPECT_TRUE(close(backbone(x), formula(x, mask), kFloat64)) << "causal " << causal;
    mask[1].slice(0, 5).fill_(false);
    const at::Tensor padded = backbone(x, Batch{.mask = mask}), expected = formula(x, mask);
    const at::Tensor real = mask.unsqueeze(-1);
    EXPECT_TRUE(close(padded.masked_select(real), expected.masked_select(real), kFloat64)) << "causal " << causal;
  }
}

TEST(AttentionBackbones, AreTheFormulasWithAGeluMlp) {
  BackboneOptions options = small_options(every_mixer()[0], /*causal=*/true);
  options.mlp = MlpType::kGelu;
  Backbone backbone = random_backbone(options);
  const at::Tensor x = random_rows(2, 9);
  EXPECT_TRUE(close(backbone(x), ByFormula(backbone)(x, at::ones({2, 9}, at::kBool)), kFloat64));
  EXPECT_FALSE(backbone->named_parameters().contains("blocks.0.mlp.gate.weight"));
}

TEST(Backbones, DropOnlyInTrainingAndTheSameOnceMoreWhenRecomputed) {
  BackboneOptions options = small_options(every_mixer()[0], /*causal=*/true);
  Backbone kept = random_backbone(options);
  options.dropout = 0.25;
  Backbone backbone = random_backbone(options);
  const at::NoGradGuard no_grad;
  for (const auto& parameter : kept->named_parameters())
    backbone->named_parameters()[parameter.key()].copy_(parameter.value());
  const at::Tensor x = random_rows(2, 9);
  backbone->eval();
  EXPECT_TRUE(backbone(x).equal(kept(x)));
  backbone->train();
  const auto trained = [&](bool recompute) {
    const at::AutoGradMode with_grad(true);
    at::manual_seed(3);
    backbone->recompute = recompute;
    const at::Tensor input = x.clone().requires_grad_();
    const at::Tensor y = backbone(input);
    y.square().sum().backward();
    return std::pair{y.detach(), input.grad()};
  };
  const auto [y, gradient] = trained(false);
  const auto [again, remade] = trained(true);
  EXPECT_FALSE(y.equal(kept(x)));
  EXPECT_TRUE(y.equal(again));
  EXPECT_TRUE(close(remade, gradient, kFloat64));
  options.dropout = 1;
  EXPECT_TRUE(fails_with("backbone: expected dropout in [0, 1), got 1", [&] { Backbone{options}; }));
}

}  // namespace
}  // namespace fem
