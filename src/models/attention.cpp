// attention: four projections, rotary positions, torch's fused attention kernel.
#include <ATen/ATen.h>

#include "mixer/streaming.h"
#include "models/attend.h"
#include "models/token_mixer.h"
#include "nn/linear.h"
#include "priors/keys_and_values.h"
#include "util/check.h"

namespace fem {
namespace {

at::Tensor attention(const MixerInput& in, const AttentionWeights& w, const MixerOptions& options, const Batch& batch,
                     MixerState* state) {
  const Heads h = heads_of(in, w, options, /*maps=*/1, batch, state);
  return project(attend(h, batch, options.causal, state, "attention").flatten(2), {w.output})[0];
}

Memory attention_memory(const MixerOptions& options, at::ScalarType dtype) {
  const int64_t width = options.n_embd / options.n_head;
  Memory memory = memory_of_keys_and_values({options.n_head, width}, {options.n_head, width}, dtype);
  memory.layer = "attention, " + rope_words(options);
  return memory;
}

class AttentionMixer final : public TokenMixer {
 public:
  void check(const BackboneOptions& options) const override {
    check_taken(options.mixer, "plain attention", {"bias", "causal", "use_rope", "rope_theta"});
    FEM_CHECK(options.n_embd % (2 * options.n_head) == 0,
              "attention: expected n_embd to be a multiple of twice n_head, got ", options.n_embd, " and ",
              options.n_head);
  }

  std::vector<ParameterSpec> parameters(const BackboneOptions& options, int64_t) const override {
    std::vector<ParameterSpec> specs;
    declare_attention(specs, options.mixer);
    return specs;
  }

  Mix bind(const BackboneOptions& options, int64_t, const std::vector<at::Tensor>& weights) const override {
    return [w = attention_weights(weights, options.mixer), mixer = options.mixer](
               const MixerInput& in, const Batch& batch, MixerState* state, bool /*training*/) {
      if (!state) return attention(in, w, mixer, batch, nullptr);
      return stream("attention", in.x, batch, attention_memory(mixer, in.x.scalar_type()), *state,
                    [&](MixerState& next) { return attention(in, w, mixer, batch, &next); });
    };
  }

  bool queries_apart(const BackboneOptions&) const override { return true; }
};

}  // namespace

const TokenMixer& attention_mixer() {
  static const AttentionMixer mixer;
  return mixer;
}

}  // namespace fem
