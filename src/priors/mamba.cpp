// mamba: p_t(i) ~ the impulse response of a positive selective state-space model, one for every channel.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "fem/ops/ssm_read.h"
#include "priors/chosen.h"
#include "priors/decay.h"
#include "priors/prior.h"

namespace fem {
namespace {

constexpr PartName kDeltaBC{"W_p"}, kA{"A_log"}, kD{"D_diag"}, kInteract{"W_interact"};

// Scores instead of probabilities: sums of s_t(i), not divided by their total.
void unnormalise(RecurrentRead& read, const std::optional<at::Tensor>& beta) {
  const at::Tensor total = read.log_normalizer.to(read.mean.scalar_type());
  const at::Tensor seen = total != -INFINITY;
  if (beta) read.free_energy = read.free_energy + at::where(seen, total, 0) / *beta;
  read.mean = read.mean * total.exp();
}

// The index set lifted to pairs (i, channel): p_tj(i, c) = M_jc p_tc(i) with the rows of M summing to one. What is
// compared across channels are the energies beta v, so that one pass over the tokens serves every j
// (docs/decisions/0006-channel-interaction.md).
Read choose_among_channels(const Read& read, const std::optional<at::Tensor>& beta, const at::Tensor& logits) {
  const at::Tensor weights = logits.softmax(-1).transpose(-2, -1);  // [H, from, to]
  const auto mixed = [&](const at::Tensor& x) { return at::einsum("bthc,hcj->bthj", {x, weights}); };
  if (!beta) return {mixed(read.mean), {}};
  return {mixed(*beta * read.mean) / *beta, mixed((*beta * read.free_energy).exp()).log() / *beta};
}

// Biases of Delta with which its steps spread over 0.001 ... 0.1; B and C start at 0.
std::vector<double> spread_steps(int64_t channels, int64_t projected) {
  std::vector<double> biases = geometric(0.001, 0.1, channels);
  std::transform(biases.begin(), biases.end(), biases.begin(), inverse_softplus);
  biases.resize(projected, 0.0);
  return biases;
}

// Logits with which a channel starts out choosing from its own tokens nine times out of ten.
std::vector<double> own_channel_first(int64_t heads, int64_t width) {
  std::vector<double> logits(heads * width * width, 0.0);
  for (int64_t row = 0; row < heads * width; ++row) logits[row * width + row % width] = std::log(9.0 * (width - 1));
  return logits;
}

class MambaPrior final : public Prior {
 public:
  int64_t head_key(const MixerOptions&, int64_t, int64_t) const override { return 0; }

  std::vector<Part> parts(const MixerOptions& options, const MixerSizes& sizes) const override {
    const DialectRules& rules = rules_of(options.dialect);
    const int64_t rank = options.ssm_rank, heads = options.n_head, width = sizes.head_value;
    const int64_t projected = sizes.value + 2 * rank;
    const Conditioned conditioned = rules.mamba_conditioned ? Conditioned::kBeforeGates : Conditioned::kNot;
    Start steps = 0.0;
    if (rules.spread_starts) steps = [=, channels = sizes.value] { return spread_steps(channels, projected); };
    std::vector<Part> parts{projection(kDeltaBC, options, projected, conditioned, steps),
                            parameter(kA, {sizes.value, rank}, -1.0), parameter(kD, {sizes.value}, 1.0)};
    if (options.mamba_interact)
      parts.push_back(parameter(kInteract, {heads, width, width}, [=] { return own_channel_first(heads, width); }));
    return parts;
  }

  bool squashes_value(const MixerOptions& options) const override { return rules_of(options.dialect).squashed_values; }

  // Sums of (1, v, exp(beta v)) in R states a channel, as ssm_read has them.
  Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const override {
    const int64_t streams = options.has_free_energy() ? 3 : 2;
    return memory_of_sums({streams, options.n_head, sizes.head_value, options.ssm_rank}, values);
  }

  Read read(const PriorCall& call) const override {
    RecurrentRead read = call.keep_sums(ssm_read(call.value, call.beta, ssm_of(call), call.recurrent()));
    if (!call.options.mamba_normalize) unnormalise(read, call.beta);
    return call.options.mamba_interact ? choose_among_channels(read, call.beta, call.parameter(kInteract)) : read;
  }

  // w_t(i) = sum_r C_tr exp(A_r steps between) B_ir Delta_i, and D where i = t; H(0) = D alone if it is delayed.
  at::Tensor log_weights(const PriorCall& call, const at::Tensor& chosen) const override {
    const Ssm ssm = ssm_of(call);
    const at::Tensor delta = where_real(ssm.delta, call.batch);
    at::Tensor steps = passed(delta, chosen);
    if (ssm.delayed) steps = steps - as_chosen(delta, chosen);
    at::Tensor weights = at::zeros_like(steps);
    for (int64_t r = 0; r < call.options.ssm_rank; ++r) {  // one at a time: all would be R times as much memory
      const at::Tensor rate = ssm.A.select(-1, r).unsqueeze(-1);
      const at::Tensor in = as_tokens(ssm.B.select(-1, r)), out = as_chosen(ssm.C.select(-1, r), chosen);
      weights += (rate * steps).exp() * (out * in).unsqueeze(2).unsqueeze(2);
    }
    weights = weights * as_tokens(delta);
    const at::Tensor itself =
        (at::arange(delta.size(1), chosen.options()) == chosen.unsqueeze(-1)).view({1, chosen.size(0), 1, 1, -1});
    const at::Tensor own = ssm.D.unsqueeze(-1);
    return at::where(itself, ssm.delayed ? own : weights + own, weights).log();
  }

 private:
  static Ssm ssm_of(const PriorCall& call) {
    const MixerOptions& options = call.options;
    const int64_t rank = options.ssm_rank, value = call.sizes.value, heads = options.n_head;
    const auto split = call.parts[kDeltaBC].by_head(1).squeeze(2).split_with_sizes({value, rank, rank}, -1);
    const at::Tensor &delta = split[0], &B = split[1], &C = split[2];
    const auto positive = [&](const at::Tensor& x) { return at::softplus(x) + options.eps; };
    const at::Tensor step = at::softplus(delta);

    Ssm ssm;
    ssm.delayed = call.rules().mamba_delayed;
    ssm.delta = (call.rules().falling_step ? at::exp(-step) : step).unflatten(-1, {heads, -1});
    ssm.A = -at::softplus(call.parameter(kA)).unflatten(0, {heads, -1});
    ssm.B = positive(B);
    ssm.C = positive(C);
    ssm.D = positive(call.parameter(kD)).unflatten(0, {heads, -1});
    return ssm;
  }
};

}  // namespace

const Prior& mamba_prior() {
  static const MambaPrior prior;
  return prior;
}

}  // namespace fem
