// attention: four projections, rotary positions, torch's fused attention kernel.
#include <ATen/ATen.h>

#include "mixer/streaming.h"
#include "models/attend.h"
#include "nn/linear.h"

namespace fem {
namespace {

at::Tensor attention(const MixerInput& in, const AttentionWeights& w, const MixerOptions& options, const Batch& batch,
                     MixerState* state) {
  const Heads h = heads_of(in, w, options, /*maps=*/1, batch, state);
  return project(attend(h, batch, options.causal, state, "attention").flatten(2), {w.output})[0];
}

class AttentionMixer final : public OneMapMixer {
 public:
  void check(const BackboneOptions& options) const override { check_attention_options(options, "plain attention"); }

  std::vector<ParameterSpec> parameters(const BackboneOptions& options, int64_t) const override {
    std::vector<ParameterSpec> specs;
    declare_attention(specs, options.mixer);
    return specs;
  }

  Mix bind(const BackboneOptions& options, int64_t, const std::vector<at::Tensor>& weights) const override {
    return [w = attention_weights(weights, options.mixer), mixer = options.mixer](
               const MixerInput& in, const Batch& batch, MixerState* state, bool /*training*/) {
      if (!state) return attention(in, w, mixer, batch, nullptr);
      const int64_t width = mixer.n_embd / mixer.n_head;
      return stream("attention", in.x, batch, attention_memory("attention", mixer, width, in.x.scalar_type()), *state,
                    [&](MixerState& next) { return attention(in, w, mixer, batch, &next); });
    };
  }
};

}  // namespace

const TokenMixer& attention_mixer() {
  static const AttentionMixer mixer;
  return mixer;
}

}  // namespace fem
