// newton_light: attention a = sum_i p_i v_i scaled by what is left of the values' covariance without its off-diagonal,
//   diagonal    y = a (1 + alpha (sum_i p_i v_i^2 - a^2))     channel by channel
//   isotropic   y = a (1 + alpha t), t the mean of that over the channels of a head
// with one learned scale a head, alpha = c / sqrt(K), from c = 0 on. Both are attention on wider values, [v, v^2] or
// [v, |v|^2 / V]. Our own simplification of MHA2nd1st: docs/energy.md.
#include "models/newton_light.h"

#include <ATen/ATen.h>

#include "fem/ops/softmax_read.h"
#include "mixer/streaming.h"
#include "models/attend.h"
#include "nn/linear.h"
#include "util/check.h"

namespace fem {
namespace {

at::Tensor spread_of(const at::Tensor& squares, bool isotropic) { return isotropic ? squares.mean(-1, true) : squares; }

bool is_isotropic(const BackboneOptions& options) { return options.curvature == Curvature::kIsotropic; }

at::Tensor newton_light(const MixerInput& in, const AttentionWeights& w, const at::Tensor& c,
                        const BackboneOptions& options, const Batch& batch, MixerState* state) {
  Heads h = heads_of(in, w, options.mixer, /*maps=*/1, batch, state);
  h.value = with_squares(h.value, is_isotropic(options));
  const KeysAndValues seen = keys_and_values(h, batch, state);
  const SoftmaxReadOptions read{.causal = options.mixer.causal, .key_mask = seen.mask, .cu_seqlens = batch.cu_seqlens};
  const at::Tensor moments = softmax_read(h.query, seen.key, seen.value, std::nullopt, read).mean;
  const at::Tensor scaled =
      scaled_by_variance(moments, curvature_scale(c, h), options.n_embd / options.n_head, is_isotropic(options));
  return project(scaled.flatten(2), {w.output})[0];
}

class NewtonLightMixer final : public OneMapMixer {
 public:
  void check(const BackboneOptions& options) const override {
    check_attention_options(options, "newton_light");
    FEM_CHECK(!options.curvature || options.curvature == Curvature::kDiagonal || is_isotropic(options),
              "newton_light: expected curvature to be \"diagonal\" or \"isotropic\", got \"",
              spelled(*options.curvature), "\"; block_mixer = \"newton\" has it");
    FEM_CHECK(options.rho == 0, "newton_light: expected rho = 0, got ", options.rho,
              "; block_mixer = \"newton\" has it");
  }

  std::vector<ParameterSpec> parameters(const BackboneOptions& options, int64_t) const override {
    return curved_attention_parameters(options.mixer);
  }

  Mix bind(const BackboneOptions& options, int64_t, const std::vector<at::Tensor>& weights) const override {
    return [w = attention_weights(weights, options.mixer), c = weights.back(), options](
               const MixerInput& in, const Batch& batch, MixerState* state, bool /*training*/) {
      if (!state) return newton_light(in, w, c, options, batch, nullptr);
      const int64_t width = options.n_embd / options.n_head, kept = is_isotropic(options) ? width + 1 : 2 * width;
      return stream("newton_light", in.x, batch,
                    attention_memory("newton_light", options.mixer, kept, in.x.scalar_type()), *state,
                    [&](MixerState& next) { return newton_light(in, w, c, options, batch, &next); });
    };
  }

  bool has_curvature() const override { return true; }
};

}  // namespace

at::Tensor with_squares(const at::Tensor& value, bool isotropic) {
  return at::cat({value, spread_of(value.square(), isotropic)}, -1);
}

at::Tensor scaled_by_variance(const at::Tensor& moments, const at::Tensor& alpha, int64_t width, bool isotropic) {
  const at::Tensor mean = moments.slice(-1, 0, width);
  const at::Tensor variance = moments.slice(-1, width) - spread_of(mean.square(), isotropic);
  return mean * (1 + alpha.unsqueeze(-1) * variance);
}

const TokenMixer& newton_light_mixer() {
  static const NewtonLightMixer mixer;
  return mixer;
}

}  // namespace fem
