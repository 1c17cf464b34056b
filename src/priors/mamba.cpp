// mamba: p_t(i) ~ the impulse response of a positive selective state-space model, one for every channel.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "fem/ops/ssm_read.h"
#include "priors/decay.h"
#include "priors/prior.h"
#include "priors/projection.h"

namespace fem {
namespace {

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

class MambaPrior final : public Prior {
 public:
  int64_t head_key(const MixerOptions&, int64_t, int64_t) const override { return 0; }

  size_t linear_layers(const MixerOptions&) const override { return 1; }

  std::vector<ParameterSpec> parameters(const MixerOptions& options, const MixerSizes& sizes) const override {
    using Init = ParameterSpec::Init;
    const int64_t rank = options.ssm_rank, heads = options.n_head, width = sizes.head_value;
    std::vector<double> start(sizes.value + 2 * rank, 0.0);
    if (rules_of(options.dialect).spread_starts) {
      const std::vector<double> steps = geometric(0.001, 0.1, sizes.value);
      std::transform(steps.begin(), steps.end(), start.begin(), inverse_softplus);
    }
    std::vector<ParameterSpec> specs;
    declare_linear(specs, "W_p", options.n_embd, start, options.bias);
    specs.push_back({"A_log", {sizes.value, rank}, Init::kConstant, -1.0});
    specs.push_back({"D_diag", {sizes.value}, Init::kConstant, 1.0});
    if (options.mamba_interact) {
      // A channel starts out choosing from its own tokens nine times out of ten.
      std::vector<double> logits(heads * width * width, 0.0);
      for (int64_t row = 0; row < heads * width; ++row) logits[row * width + row % width] = std::log(9.0 * (width - 1));
      specs.push_back({"W_interact", {heads, width, width}, Init::kValues, 0.0, logits});
    }
    return specs;
  }

  // The whole projection: Delta, B and C.
  std::vector<int64_t> leading_widths(const MixerOptions& options, const MixerSizes& sizes) const override {
    if (!rules_of(options.dialect).mamba_conditioned) return {};
    return {sizes.value + 2 * options.ssm_rank};
  }

  bool squashes_value(const MixerOptions& options) const override { return rules_of(options.dialect).squashed_values; }

  // Sums of (1, v, exp(beta v)) in R states a channel, as ssm_read has them.
  Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const override {
    const int64_t streams = options.has_free_energy() ? 3 : 2;
    return memory_of_sums({streams, options.n_head, sizes.head_value, options.ssm_rank}, values);
  }

  Read read(const PriorCall& call) const override {
    const MixerOptions& options = call.options;
    const int64_t rank = options.ssm_rank, value = call.sizes.value, heads = options.n_head;
    const at::Tensor* own = call.weights.data();  // A_log, D_diag, W_interact
    const Modulation modulation = call.rules().mamba_conditioned ? call.modulations[0] : Modulation();
    const auto parts = by_head(call.projected[0], 1, modulation).squeeze(2).split_with_sizes({value, rank, rank}, -1);
    const auto positive = [&](const at::Tensor& x) { return at::softplus(x) + options.eps; };
    const at::Tensor step = at::softplus(parts[0]);

    Ssm ssm;
    ssm.delayed = call.rules().mamba_delayed;
    ssm.delta = (call.rules().falling_step ? at::exp(-step) : step).unflatten(-1, {heads, -1});
    ssm.A = -at::softplus(own[0]).unflatten(0, {heads, -1});
    ssm.B = positive(parts[1]);
    ssm.C = positive(parts[2]);
    ssm.D = positive(own[1]).unflatten(0, {heads, -1});
    RecurrentRead read = call.keep_sums(ssm_read(call.value, call.beta, ssm, call.recurrent()));
    if (!options.mamba_normalize) unnormalise(read, call.beta);
    return options.mamba_interact ? choose_among_channels(read, call.beta, own[2]) : read;
  }
};

}  // namespace

const Prior& mamba_prior() {
  static const MambaPrior prior;
  return prior;
}

}  // namespace fem
