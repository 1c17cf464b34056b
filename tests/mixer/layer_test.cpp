// What the layer as a whole computes, and which inputs it refuses.
#include <ATen/ATen.h>

#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/by_definition.h"
#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;
using testing::fails_with;
using testing::random_mixer;
using testing::random_tokens;
using testing::small_options;

// Runs once for every prior in every dialect.
class EveryPrior : public ::testing::TestWithParam<testing::PriorInDialect> {
 protected:
  EveryPrior() {
    at::manual_seed(5);
    std::tie(options.prior_type, options.dialect) = GetParam();
  }
  MixerOptions options = small_options();
};
INSTANTIATE_TEST_SUITE_P(Prior, EveryPrior, testing::every_prior_in_every_dialect(),
                         [](const auto& info) { return testing::name_of(info.param); });

// The layer in another dtype, with the same parameters.
FreeEnergyMixer copy_of(FreeEnergyMixer& mixer, at::ScalarType dtype) {
  const at::NoGradGuard no_gradients;
  FreeEnergyMixer copy(mixer->options);
  copy->to(dtype);
  auto parameters = copy->named_parameters();
  for (const auto& parameter : mixer->named_parameters()) parameters[parameter.key()].copy_(*parameter);
  return copy;
}

// "y" and the gradients of <w, y> by "x" and by every parameter that is used.
using Results = std::map<std::string, at::Tensor>;
Results results_of(FreeEnergyMixer& mixer, const at::Tensor& tokens, const at::Tensor& w, const Batch& batch = {}) {
  const auto dtype = mixer->parameters()[0].scalar_type();
  const at::Tensor x = tokens.detach().to(dtype, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
  mixer->zero_grad();
  const at::Tensor y = mixer->forward(x, batch);
  (y * w.to(dtype)).sum().backward();
  Results results{{"y", y.detach()}, {"x", x.grad()}};
  for (const auto& parameter : mixer->named_parameters())
    if (parameter->grad().defined()) results[parameter.key()] = parameter->grad();
  return results;
}

// The paper's keys of rnn_softmax are only added to, and a common shift of keys does not matter.
bool cancels(const std::string& name, const MixerOptions& options) {
  return name == "W_k.bias" && options.prior_type == PriorType::kRnnSoftmax && options.dialect == Dialect::kPaper;
}

void expect_near_float64(const Results& actual, const Results& expected, const MixerOptions& options) {
  for (const auto& [name, tensor] : expected) {
    const double terms = cancels(name, options) ? expected.at("W_k.weight").abs().max().item<double>() : 0;
    EXPECT_TRUE(
        close(actual.at(name), tensor, name == "y" ? testing::kFloat32Layer : testing::kFloat32LayerGradient, terms))
        << name;
  }
}

TEST_P(EveryPrior, Float32IsNearFloat64) {
  for (const bool causal : {true, false}) {
    options.causal = causal;
    FreeEnergyMixer low = random_mixer(options, at::kFloat), exact = copy_of(low, at::kDouble);
    const at::Tensor x = random_tokens(2, 150, options, at::kFloat), w = at::randn_like(x);
    expect_near_float64(results_of(low, x, w), results_of(exact, x, w), options);
  }
}

// How much a random layer amplifies the rounding of its operators is for the definitions in bfloat16 to say. The median
// of several layers counts: where relu all but closes a head's features, any rounding shows.
TEST_P(EveryPrior, Bfloat16IsAboutAsExactAsTheDefinitionsInBfloat16) {
  for (const bool causal : {true, false}) {
    options.causal = causal;
    std::map<std::string, std::vector<double>> ratios;
    for (int draw = 0; draw < 9; ++draw) {
      FreeEnergyMixer low = random_mixer(options, at::kBFloat16), exact = copy_of(low, at::kDouble);
      const at::Tensor x = random_tokens(2, 70, options, at::kBFloat16), w = at::randn_like(x);
      const Results actual = results_of(low, x, w), expected = results_of(exact, x, w);
      const testing::ByDefinition definitions;
      const Results plain = results_of(low, x, w);
      for (const auto& [name, tensor] : expected)
        if (!cancels(name, options))
          ratios[name].push_back(testing::times_plain(actual.at(name), plain.at(name), tensor));
    }
    for (auto& [name, values] : ratios) {
      std::nth_element(values.begin(), values.begin() + 4, values.end());
      EXPECT_LE(values[4], name == "y" ? testing::kTimesPlainBfloat16 : testing::kTimesPlainBfloat16Gradient)
          << name << (causal ? ", causal" : ", encoder");
    }
  }
}

TEST(FreeEnergyMixer, WithAllSwitchesOffIsAttention) {
  MixerOptions options = small_options();
  options.use_lse = options.use_temperature = options.use_outer_gate = options.use_conv = false;
  options.use_rope = false;
  for (const bool causal : {true, false}) {
    options.causal = causal;
    FreeEnergyMixer mixer = random_mixer(options);
    const auto p = mixer->named_parameters();
    const at::Tensor x = random_tokens(2, 9, options);
    const auto heads = [&](const std::string& name) {
      return at::linear(x, p[name + ".weight"], p[name + ".bias"]).unflatten(-1, {options.n_head, -1}).transpose(1, 2);
    };
    const at::Tensor attention =
        at::scaled_dot_product_attention(heads("W_q"), heads("W_k"), heads("W_v"), {}, 0, causal);
    EXPECT_TRUE(close(mixer(x), at::linear(attention.transpose(1, 2).flatten(2), p["W_o.weight"], p["W_o.bias"]),
                      testing::kFloat64));
  }
}

// A layer that shows its read: one output a channel, no outer gate, and the inner gate at the given logit.
struct OpenLayer {
  explicit OpenLayer(MixerOptions options) : mixer(nullptr) {
    options.fem_ratio = 1;
    options.use_outer_gate = false;
    mixer = random_mixer(options);
    const at::NoGradGuard no_gradients;
    mixer->weights.output.weight.copy_(at::eye(options.n_embd));
    mixer->weights.output.bias.zero_();
  }
  at::Tensor read(const at::Tensor& x, double gate_logit) {
    const at::NoGradGuard no_gradients;
    mixer->weights.temperature_gate.weight.zero_();
    mixer->weights.temperature_gate.bias.fill_(gate_logit);
    return mixer(x);
  }
  FreeEnergyMixer mixer;
};

// The authors' rnn_softmax adds log(q) / beta to F: no longer a free energy of its values, and below the mean or above.
bool has_query_inside_log(const MixerOptions& options) {
  return options.prior_type == PriorType::kRnnSoftmax && options.dialect == Dialect::kReference;
}

TEST_P(EveryPrior, ReadsBetweenTheMeanAndTheFreeEnergy) {
  options.use_conv = false;
  OpenLayer layer(options);
  const at::Tensor x = random_tokens(2, 12, options);
  const at::Tensor mean = layer.read(x, -1e4), free_energy = layer.read(x, 1e4);
  if (has_query_inside_log(options)) {
    EXPECT_FALSE(free_energy.ge(mean).all().item<bool>());
    return;
  }
  at::Tensor before = mean;
  for (const double logit : {-3.0, 0.0, 3.0, 1e4}) {
    const at::Tensor u = layer.read(x, logit);
    EXPECT_TRUE(u.ge(before - 1e-12).all().item<bool>()) << logit;
    EXPECT_TRUE(u.le(free_energy + 1e-12).all().item<bool>()) << logit;
    before = u;
  }
  EXPECT_GT((free_energy - mean).max().item<double>(), 0.1);
  EXPECT_TRUE(close(free_energy.select(1, 0), mean.select(1, 0), testing::kFloat64)) << "one token has no spread";
}

TEST_P(EveryPrior, FreeEnergyGrowsWithBeta) {
  options.use_conv = false;
  OpenLayer layer(options);
  const at::Tensor x = random_tokens(2, 12, options);
  const at::NoGradGuard no_gradients;
  layer.mixer->weights.beta_param.fill_(-1);
  const at::Tensor cool = layer.read(x, 1e4);
  layer.mixer->weights.beta_param.fill_(1);
  const bool grows = layer.read(x, 1e4).ge(cool - 1e-12).all().item<bool>();
  EXPECT_EQ(grows, !has_query_inside_log(options));
}

TEST(FreeEnergyMixer, ClipsValuesOnlyForTheFreeEnergy) {
  for (const bool free_energy : {true, false}) {
    MixerOptions options = small_options();
    options.use_temperature = false;
    options.use_lse = free_energy;
    options.use_conv = options.use_outer_gate = false;
    options.value_logexp_cap = 0.5;
    FreeEnergyMixer mixer = random_mixer(options);
    const at::NoGradGuard no_gradients;
    mixer->weights.value.bias.fill_(100);
    mixer->weights.output.weight.fill_(1);
    mixer->weights.output.bias.zero_();
    const double each =
        mixer(random_tokens(1, 3, options)).mean().item<double>() / static_cast<double>(sizes_of(options).value);
    if (free_energy)
      EXPECT_NEAR(each, 0.5, 1e-9);
    else
      EXPECT_GT(each, 50);
  }
}

// The paper's E.3 and E.5 hold below the cap: a value of 3 meets it at beta = 40/3, then F falls (value_cap_test.cpp).
TEST(FreeEnergyMixer, ReadsLessAtEveryHigherBetaBeyondTheCap) {
  MixerOptions options = small_options();
  options.use_conv = options.use_outer_gate = options.use_inner_gate = false;
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    FreeEnergyMixer mixer = random_mixer(options, dtype);
    at::Tensor bias = mixer->weights.value.bias;
    for (const auto& [beta, expected] : {std::pair{5.0, 3.0}, std::pair{13.0, 3.0}, std::pair{20.0, 2.0},
                                         std::pair{50.0, 0.8}, std::pair{100.0, 0.4}}) {
      {
        const at::NoGradGuard no_gradients;
        mixer->weights.value.weight.zero_();
        bias.fill_(3);
        mixer->weights.beta_param.fill_(beta);  // softplus is the identity here, but for e^-beta
        mixer->weights.output.weight.fill_(1.0 / static_cast<double>(sizes_of(options).value));
        mixer->weights.output.bias.zero_();
      }
      mixer->zero_grad();
      const at::Tensor y = mixer(random_tokens(1, 7, options, dtype));
      y.sum().backward();
      EXPECT_NEAR(y.max().item<double>(), expected, 1e-2 * expected) << beta;
      EXPECT_EQ((bias.grad() == 0).all().item<bool>(), beta > 13) << beta;
    }
  }
}

TEST_P(EveryPrior, LaterTokensHaveNoInfluenceAndNoGradient) {
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(2, 9, options).requires_grad_();
  const at::Tensor early = mixer(x).slice(1, 0, 5);
  early.square().sum().backward();
  EXPECT_EQ(x.grad().slice(1, 5).abs().max().item<double>(), 0);
  EXPECT_GT(x.grad().slice(1, 0, 5).abs().min().item<double>(), 0);
  const at::Tensor changed = at::cat({x.detach().slice(1, 0, 5), random_tokens(2, 4, options)}, 1);
  EXPECT_TRUE(at::equal(mixer(changed).slice(1, 0, 5), early));
}

TEST_P(EveryPrior, AnEncoderSeesEverything) {
  options.causal = false;
  for (const bool bidirectional : {false, true}) {
    options.conv_bidirectional = bidirectional;
    FreeEnergyMixer mixer = random_mixer(options);
    const at::Tensor x = random_tokens(1, 6, options).requires_grad_();
    mixer(x).select(1, 0).sum().backward();
    EXPECT_GT(x.grad().select(1, 5).abs().max().item<double>(), 0);
  }
}

TEST_P(EveryPrior, WithABidirectionalConditionerMirrorsWhenItsWeightsAreSwapped) {
  options.causal = false;
  options.use_rope = false;
  options.conv_bidirectional = true;
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(2, 7, options);
  MixerWeights swapped = mixer->weights;
  std::swap(swapped.forward, swapped.backward);
  EXPECT_TRUE(close(mix(x.flip(1), swapped, options).flip(1), mixer(x), testing::kFloat64));
}

TEST(FreeEnergyMixer, EveryBackendComputesTheSame) {
  for (const bool free_energy : {true, false})
    for (const bool causal : {true, false})
      for (const auto window : {std::optional<int64_t>(), std::optional<int64_t>(3)})
        for (const bool masked : {true, false}) {
          MixerOptions options = small_options();
          options.use_lse = options.use_temperature = free_energy;
          options.causal = causal;
          options.window = window;
          // In float32: in float64 all but sdpa are the definition.
          FreeEnergyMixer mixer = random_mixer(options, at::kFloat), exact = copy_of(mixer, at::kDouble);
          exact->options.softmax_backend = SoftmaxBackend::kReference;
          Batch batch;
          if (masked) batch.mask = at::arange(70).ge(at::tensor({40, 0}).unsqueeze(1));
          const at::Tensor x = random_tokens(2, 70, options, at::kFloat), w = at::randn_like(x);
          const Results expected = results_of(exact, x, w, batch);
          for (const auto backend :
               {SoftmaxBackend::kReference, SoftmaxBackend::kAuto, SoftmaxBackend::kFused, SoftmaxBackend::kSdpa}) {
            SCOPED_TRACE(spelled(backend));
            mixer->options.softmax_backend = backend;
            expect_near_float64(results_of(mixer, x, w, batch), expected, options);
          }
        }
}

TEST_P(EveryPrior, HandlesEmptyAndShortInputs) {
  for (const bool causal : {true, false}) {
    options.causal = causal;
    options.conv_bidirectional = !causal;
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      FreeEnergyMixer mixer = random_mixer(options, dtype);
      for (const auto& [batch, tokens] : {std::pair{2, 1}, std::pair{0, 3}, std::pair{2, 0}, std::pair{0, 0}}) {
        const at::Tensor x = random_tokens(batch, tokens, options, dtype).requires_grad_();
        const at::Tensor y = mixer(x);
        EXPECT_EQ(y.sizes(), x.sizes());
        y.sum().backward();
        EXPECT_TRUE(y.isfinite().all().item<bool>());
      }
    }
  }
}

TEST(FreeEnergyMixer, RefusesInputsItCannotTake) {
  const MixerOptions options = small_options();
  FreeEnergyMixer mixer = random_mixer(options);
  const at::Tensor x = random_tokens(2, 4, options), row = random_tokens(1, 4, options);
  const auto call = [&](const at::Tensor& input, const Batch& batch = {}) { return [=] { mixer(input, batch); }; };
  const auto packed = [](std::vector<int64_t> borders) { return Batch{{}, at::tensor(borders)}; };
  EXPECT_TRUE(fails_with("mix: expected x of shape [B, T, D=16], got [2, 4]", call(x.select(2, 0))));
  EXPECT_TRUE(fails_with("mix: expected x of shape [B, T, D=16], got [2, 4, 15]", call(x.slice(2, 1))));
  EXPECT_TRUE(fails_with("mix: expected x as Double on cpu like the weights, got Float", call(x.to(at::kFloat))));
  EXPECT_TRUE(fails_with("expected mask as bool [B=2, T=4]", call(x, {at::ones({2, 4}), {}})));
  EXPECT_TRUE(fails_with("got Bool [2, 5]", call(x, {at::ones({2, 5}, at::kBool), {}})));
  EXPECT_TRUE(fails_with("expected cu_seqlens as int32 or int64 [n + 1]", call(row, {{}, at::ones({2})})));
  mixer->to(at::kHalf);
  EXPECT_TRUE(
      fails_with("mix: expected float32, bfloat16 or float64, got Half (float16 cannot", call(x.to(at::kHalf))));
  mixer->to(at::kDouble);
  EXPECT_TRUE(fails_with("expected x of shape [1, T, D], got [2, 4, 16]", call(x, packed({0, 4}))));
  EXPECT_TRUE(fails_with("got both", call(row, {at::ones({1, 4}, at::kBool), at::tensor({0, 4})})));
  for (const std::vector<int64_t>& borders : {std::vector<int64_t>{0, 3}, {1, 4}, {0, 5}, {0, 3, 2, 4}})
    EXPECT_TRUE(fails_with("mix: cu_seqlens must ", call(row, packed(borders))));
}

}  // namespace
}  // namespace fem
