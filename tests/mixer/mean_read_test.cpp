// Without letters a mixer reads the mean of its prior and nothing else: the plain formulas of linear attention, gated
// linear attention, the attention-free transformer, a linear RNN and a selective state-space model.
#include <ATen/ATen.h>

#include <cmath>

#include "fem/letters.h"
#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

// The weights w_t(i) >= 0 of the past, [B, T, T, H, V or 1], before they are divided by their sums.
class PlainWeights {
 public:
  PlainWeights(const FreeEnergyMixer& mixer, const at::Tensor& x)
      : options_(mixer->options), parameters_(mixer->named_parameters()), x_(x) {}

  at::Tensor of_the_prior() const {
    switch (options_.prior_type) {
      case PriorType::kSoftmax:
        return scores(heads("W_q"), heads("W_k") / std::sqrt(static_cast<double>(heads("W_k").size(-1)))).exp();
      case PriorType::kLinear:
        return scores(features("W_q"), features("W_k"));
      case PriorType::kGla:
        return scores(features("W_q"), features("W_k")) * decayed(-at::softplus(heads("W_decay")));
      case PriorType::kRnnSoftmax:
        return over_channels(heads("W_k")).exp().unsqueeze(1).expand({-1, x_.size(1), -1, -1, -1});
      case PriorType::kRnnDecay:
        return decayed(-at::softplus(heads("W_decay")));
      case PriorType::kMamba:
        return impulse_responses();
    }
    return {};
  }

  // What is read is multiplied by this: the attention-free transformer's query.
  at::Tensor factor() const {
    if (options_.prior_type != PriorType::kRnnSoftmax) return at::ones({1}, at::kDouble);
    const at::Tensor raw = at::softplus(heads("W_q")) + options_.eps;
    return over_channels(raw / raw.square().mean(-1, true).sqrt());
  }

  at::Tensor heads(const std::string& name) const { return linear(x_, name).unflatten(-1, {options_.n_head, -1}); }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return at::linear(x, parameters_[name + ".weight"], parameters_[name + ".bias"]);
  }

 private:
  static at::Tensor scores(const at::Tensor& query, const at::Tensor& key) {
    return (query.unsqueeze(2) * key.unsqueeze(1)).sum(-1, true);
  }
  at::Tensor features(const std::string& name) const { return at::relu(heads(name)) + options_.eps; }
  at::Tensor over_channels(const at::Tensor& x) const {
    return x.repeat({1, 1, 1, heads("W_v").size(-1) / x.size(-1)});
  }

  // The product of the decays of the tokens after i up to t.
  static at::Tensor decayed(const at::Tensor& log_decay) {
    const at::Tensor sum = log_decay.cumsum(1);
    return (sum.unsqueeze(2) - sum.unsqueeze(1)).exp();
  }

  at::Tensor impulse_responses() const {
    const int64_t length = x_.size(1), rank = options_.ssm_rank, values = parameters_["D_diag"].size(0);
    const auto split = linear(x_, "W_p").split_with_sizes({values, rank, rank}, -1);
    const at::Tensor delta = at::softplus(split[0]).unsqueeze(-1), A = -at::softplus(parameters_["A_log"]);
    const at::Tensor B = (at::softplus(split[1]) + options_.eps).unsqueeze(2);
    const at::Tensor C = (at::softplus(split[2]) + options_.eps).unsqueeze(2);
    at::Tensor responses = at::zeros({x_.size(0), length, length, values}, at::kDouble);
    for (int64_t i = 0; i < length; ++i) {
      at::Tensor h = delta.select(1, i) * B.select(1, i);
      for (int64_t t = i; t < length; ++t) {
        if (t > i) h = (delta.select(1, t) * A).exp() * h;
        responses.select(1, t).select(1, i).copy_((C.select(1, t) * h).sum(-1));
      }
      responses.select(1, i).select(1, i).add_(at::softplus(parameters_["D_diag"]) + options_.eps);
    }
    return responses.unflatten(-1, {options_.n_head, -1});
  }

  const MixerOptions options_;
  const torch::OrderedDict<std::string, at::Tensor> parameters_;
  const at::Tensor x_;
};

void expect_plain_mean(MixerOptions options) {
  at::manual_seed(4);
  const at::NoGradGuard no_gradients;
  options.use_rope = false;
  const MixerOptions chosen = with_letters(options, "").options;
  FreeEnergyMixer mixer = random_mixer(chosen);
  const at::Tensor x = random_tokens(2, 9, chosen);
  const PlainWeights plain(mixer, x);
  const at::Tensor past = at::ones({9, 9}, at::kDouble).tril().view({1, 9, 9, 1, 1});
  const at::Tensor weights = plain.of_the_prior() * past;
  at::Tensor read = (weights * plain.heads("W_v").unsqueeze(1)).sum(2);
  if (chosen.prior_type != PriorType::kMamba || chosen.mamba_normalize) read = read / weights.sum(2);
  EXPECT_TRUE(close(mixer(x), plain.linear((plain.factor() * read).flatten(2), "W_o"), kFloat64));
}

class MeanRead : public ::testing::TestWithParam<PriorType> {};
INSTANTIATE_TEST_SUITE_P(Prior, MeanRead, ::testing::ValuesIn(all_priors()),
                         [](const auto& info) { return spelled(info.param); });

TEST_P(MeanRead, IsThePlainFormula) {
  MixerOptions options = small_options();
  options.prior_type = GetParam();
  expect_plain_mean(options);
}

TEST(MeanReads, OfMambaUnnormalisedAreItsOutputs) {
  MixerOptions options = small_options();
  options.prior_type = PriorType::kMamba;
  options.mamba_normalize = false;
  expect_plain_mean(options);
}

}  // namespace
}  // namespace fem::testing
