// fem: the Free Energy Mixer.
#include "fem/inspect.h"
#include "mixer/parameters.h"
#include "mixer/parts.h"
#include "mixer/queries_and_keys.h"
#include "models/token_mixer.h"
#include "nn/parameters.h"

namespace fem {
namespace {

class FemMixer final : public TokenMixer {
 public:
  void check(const BackboneOptions& options) const override { sizes_of(options.mixer); }

  std::vector<ParameterSpec> parameters(const BackboneOptions& options, int64_t) const override {
    return mixer_parameters(options.mixer);
  }

  Mix bind(const BackboneOptions& options, int64_t, const std::vector<at::Tensor>& weights) const override {
    return [bound = bound_weights(options, weights), mixer = options.mixer](const MixerInput& in, const Batch& batch,
                                                                            MixerState* state, bool training) {
      return mix(in, bound, mixer, batch, state, training);
    };
  }

  bool queries_apart(const BackboneOptions& options) const override { return has_queries(options.mixer); }

  QueryAndKey queries_and_keys(const BackboneOptions& options, const std::vector<at::Tensor>& weights,
                               const MixerInput& in) const override {
    return softmax_queries_and_keys(in, bound_weights(options, weights), options.mixer);
  }

  Inspection inspect(const BackboneOptions& options, const std::vector<at::Tensor>& weights, const MixerInput& in,
                     const Batch& batch, const std::vector<int64_t>& positions) const override {
    return fem::inspect(in, bound_weights(options, weights), options.mixer, positions, batch);
  }

 private:
  static MixerWeights bound_weights(const BackboneOptions& options, const std::vector<at::Tensor>& weights) {
    MixerWeights bound;
    auto next = weights.begin();
    visit_parameters(options.mixer, bound, [&](const ParameterSpec&, at::Tensor& slot) { slot = *next++; });
    return bound;
  }
};

}  // namespace

const TokenMixer& fem_mixer() {
  static const FemMixer mixer;
  return mixer;
}

}  // namespace fem
