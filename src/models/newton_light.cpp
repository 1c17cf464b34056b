// newton_light: attention a = sum_i p_i v_i scaled by what is left of the values' covariance without its off-diagonal,
//   diagonal    y = a (1 + alpha (sum_i p_i v_i^2 - a^2))     channel by channel
//   isotropic   y = a (1 + alpha t), t the mean of that over the channels of a head
// with one learned scale a head, alpha = c / sqrt(K), from c = 0 on. Both are attention on wider values, [v, v^2] or
// [v, |v|^2 / V]. Our own simplification of MHA2nd1st: docs/energy.md.
#include <ATen/ATen.h>

#include "fem/ops/softmax_read.h"
#include "mixer/streaming.h"
#include "models/attend.h"
#include "models/token_mixer.h"
#include "nn/linear.h"
#include "util/check.h"

namespace fem {
namespace {

bool is_isotropic(const BackboneOptions& options) { return options.curvature == Curvature::kIsotropic; }

at::Tensor newton_light(const MixerInput& in, const AttentionWeights& w, const at::Tensor& c,
                        const BackboneOptions& options, const Batch& batch, MixerState* state) {
  Heads h = heads_of(in, w, options.mixer, /*maps=*/1, batch, state);
  const at::Tensor alpha = curvature_scale(c, h).view({-1, 1}), squares = h.value.square();
  const int64_t width = options.n_embd / options.n_head;
  const auto spread_of = [&](const at::Tensor& second) {
    return is_isotropic(options) ? second.mean(-1, true) : second;
  };
  h.value = at::cat({h.value, spread_of(squares)}, -1);
  const KeysAndValues seen = keys_and_values(h, batch, state);
  const at::Tensor moments =
      softmax_read(h.query, seen.key, seen.value, std::nullopt,
                   {.causal = options.mixer.causal, .key_mask = seen.mask, .cu_seqlens = batch.cu_seqlens})
          .mean;
  const at::Tensor mean = moments.slice(-1, 0, width);
  const at::Tensor variance = moments.slice(-1, width) - spread_of(mean.square());
  return project((mean * (1 + alpha * variance)).flatten(2), {w.output})[0];
}

class NewtonLightMixer final : public TokenMixer {
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
    std::vector<ParameterSpec> specs;
    declare_attention(specs, options.mixer);
    specs.push_back(curvature_scale_spec(options));
    return specs;
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

  bool queries_apart(const BackboneOptions&) const override { return true; }
  bool has_curvature() const override { return true; }
};

}  // namespace

const TokenMixer& newton_light_mixer() {
  static const NewtonLightMixer mixer;
  return mixer;
}

}  // namespace fem
