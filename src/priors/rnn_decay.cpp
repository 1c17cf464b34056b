// rnn_decay: p_t(i) ~ exp(sum_{tau=i+1..t} g_tau), a linear RNN with a decay of its own for every channel.
#include <ATen/ATen.h>

#include "fem/ops/channel_read.h"
#include "priors/decay.h"
#include "priors/prior.h"
#include "priors/projection.h"

namespace fem {
namespace {

class RnnDecayPrior final : public Prior {
 public:
  int64_t head_key(const MixerOptions&, int64_t, int64_t) const override { return 0; }

  size_t linear_layers(const MixerOptions&) const override { return 1; }

  std::vector<ParameterSpec> parameters(const MixerOptions& options, const MixerSizes& sizes) const override {
    std::vector<ParameterSpec> specs;
    declare_linear(specs, "W_decay", options.n_embd, decay_biases(sizes.value, rules_of(options.dialect).spread_starts),
                   options.bias);
    return specs;
  }

  std::vector<int64_t> trailing_widths(const MixerOptions&, const MixerSizes& sizes) const override {
    return {sizes.value};
  }

  Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const override {
    return memory_of_channel_sums(options, sizes, values);
  }

  Read read(const PriorCall& call) const override {
    const at::Tensor decay = by_head(call.projected[0], call.options.n_head, call.modulations[0]);
    return call.keep_sums(decay_read(-at::softplus(decay), call.value, call.beta, call.recurrent()));
  }
};

}  // namespace

const Prior& rnn_decay_prior() {
  static const RnnDecayPrior prior;
  return prior;
}

}  // namespace fem
