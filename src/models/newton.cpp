// newton: attention preconditioned by the covariance of the keys, or values, under its own weights
// (fem/ops/newton_read.h): a Newton step on the energy whose gradient attention is. One learned scale a head, c: 0,
// where it starts, is attention, 1 the step where weights are tied. Our derivation of MHA2nd1st: docs/energy.md.
#include <ATen/ATen.h>

#include <cmath>

#include "fem/ops/newton_read.h"
#include "mixer/streaming.h"
#include "models/attend.h"
#include "nn/linear.h"
#include "util/check.h"

namespace fem {
namespace {

at::Tensor newton(const MixerInput& in, const AttentionWeights& w, const at::Tensor& c, const BackboneOptions& options,
                  const Batch& batch, MixerState* state) {
  const Heads h = heads_of(in, w, options.mixer, /*maps=*/1, batch, state);
  const KeysAndValues seen = keys_and_values(h, batch, state);
  NewtonReadOptions read;
  read.of_values = options.curvature == Curvature::kValue;
  read.rho = options.rho;
  read.causal = options.mixer.causal;
  read.key_mask = seen.mask;
  read.cu_seqlens = batch.cu_seqlens;
  const at::Tensor mixed = newton_read(h.query, seen.key, seen.value, curvature_scale(c, h), read);
  return project(mixed.flatten(2), {w.output})[0];
}

class NewtonMixer final : public OneMapMixer {
 public:
  void check(const BackboneOptions& options) const override {
    check_attention_options(options, "newton");
    FEM_CHECK(!options.curvature || options.curvature == Curvature::kKey || options.curvature == Curvature::kValue,
              "newton: expected curvature to be \"key\" or \"value\", got \"", spelled(*options.curvature),
              "\"; block_mixer = \"newton_light\" has it");
    FEM_CHECK(std::isfinite(options.rho), "newton: expected rho to be a number, got ", options.rho);
    FEM_CHECK(options.rho == 0 || options.curvature != Curvature::kValue,
              "newton: expected rho = 0 with curvature \"value\", got ", options.rho,
              "; queries and values share no space");
  }

  std::vector<ParameterSpec> parameters(const BackboneOptions& options, int64_t) const override {
    return curved_attention_parameters(options.mixer);
  }

  Mix bind(const BackboneOptions& options, int64_t, const std::vector<at::Tensor>& weights) const override {
    return [w = attention_weights(weights, options.mixer), c = weights.back(), options](
               const MixerInput& in, const Batch& batch, MixerState* state, bool /*training*/) {
      if (!state) return newton(in, w, c, options, batch, nullptr);
      const int64_t width = options.n_embd / options.n_head;
      return stream("newton", in.x, batch, attention_memory("newton", options.mixer, width, in.x.scalar_type()), *state,
                    [&](MixerState& next) { return newton(in, w, c, options, batch, &next); });
    };
  }

  bool has_curvature() const override { return true; }
};

}  // namespace

const TokenMixer& newton_mixer() {
  static const NewtonMixer mixer;
  return mixer;
}

}  // namespace fem
