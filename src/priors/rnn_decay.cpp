// rnn_decay: p_t(i) ~ exp(sum_{tau=i+1..t} g_tau), a linear RNN with a decay of its own for every channel.
#include <ATen/ATen.h>

#include "fem/ops/channel_read.h"
#include "priors/chosen.h"
#include "priors/decay.h"
#include "priors/prior.h"

namespace fem {
namespace {

class RnnDecayPrior final : public Prior {
 public:
  int64_t head_key(const MixerOptions&, int64_t, int64_t) const override { return 0; }

  std::vector<Part> parts(const MixerOptions& options, const MixerSizes& sizes) const override {
    return {decay_part(options, sizes.value)};
  }

  Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const override {
    return memory_of_channel_sums(options, sizes, values);
  }

  Read read(const PriorCall& call) const override {
    return call.keep_sums(decay_read(call.value, call.beta, log_decay(call), call.recurrent()));
  }

  at::Tensor log_weights(const PriorCall& call, const at::Tensor& chosen) const override {
    return passed(where_real(log_decay(call), call.batch), chosen);
  }

 private:
  static at::Tensor log_decay(const PriorCall& call) { return -at::softplus(call.by_head(kDecay)); }  // [B, T, H, V]
};

}  // namespace

const Prior& rnn_decay_prior() {
  static const RnnDecayPrior prior;
  return prior;
}

}  // namespace fem
