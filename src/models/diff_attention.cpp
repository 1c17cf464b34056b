// diff_attention: of two attention maps of half a head's width one less the other, rotary positions, a norm a head.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <cmath>

#include "fem/ops/rms_norm.h"
#include "mixer/streaming.h"
#include "models/attend.h"
#include "models/block.h"
#include "models/token_mixer.h"
#include "nn/linear.h"
#include "nn/parameters.h"
#include "priors/keys_and_values.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr int64_t kMaps = 2;
constexpr double kLambdaDeviation = 0.1;

struct DiffAttentionWeights {
  AttentionWeights linear;
  at::Tensor lambda_query, lambda_key;  // [2, K/2]
  at::Tensor norm;                      // [K]
};

DiffAttentionWeights diff_attention_weights(const std::vector<at::Tensor>& weights, const MixerOptions& options) {
  const size_t own = weights.size() - 3;
  return {attention_weights(weights, options), weights[own], weights[own + 1], weights[own + 2]};
}

// The l0 of the definition.
double lambda_offset(int64_t layer) { return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer)); }

at::Tensor diff_attention(const MixerInput& in, const DiffAttentionWeights& w, const BackboneOptions& options,
                          double offset, const Batch& batch, MixerState* state) {
  const Heads h = heads_of(in, w.linear, options.mixer, kMaps, batch, state);
  const std::vector<at::Tensor> read =
      attend(h, batch, options.mixer.causal, state, "diff_attention").chunk(kMaps, /*dim=*/2);
  const auto exact = at::toOpMathType(w.lambda_query.scalar_type());
  const at::Tensor terms = (w.lambda_query.to(exact) * w.lambda_key.to(exact)).sum(-1).exp();
  const at::Tensor difference = read[0] - (terms[0] - terms[1] + offset) * read[1];
  // Autocast projects in bfloat16.
  const at::Tensor normed = rms_norm(difference.to(w.norm.scalar_type()), w.norm, options.norm_eps) * (1 - offset);
  return project(normed.flatten(2), {w.linear.output})[0];
}

Memory diff_attention_memory(const MixerOptions& options, at::ScalarType dtype) {
  const int64_t width = options.n_embd / options.n_head;
  Memory memory = memory_of_keys_and_values({kMaps * options.n_head, width / kMaps}, {options.n_head, width}, dtype);
  memory.layer = "diff_attention, " + rope_words(options);
  return memory;
}

class DiffAttentionMixer final : public TokenMixer {
 public:
  void check(const BackboneOptions& options) const override {
    check_taken(options.mixer, "diff_attention", {"bias", "causal", "use_rope", "rope_theta"});
    FEM_CHECK(options.n_embd % (2 * kMaps * options.n_head) == 0,
              "diff_attention: expected n_embd to be a multiple of four times n_head, got ", options.n_embd, " and ",
              options.n_head);
  }

  std::vector<ParameterSpec> parameters(const BackboneOptions& options, int64_t) const override {
    const int64_t width = options.n_embd / options.n_head;
    std::vector<ParameterSpec> specs;
    declare_attention(specs, options.mixer);
    for (const char* name : {"lambda_query", "lambda_key"})
      specs.push_back({name, {kMaps, width / kMaps}, ParameterSpec::Init::kNormal, kLambdaDeviation});
    specs.push_back(norm_spec("norm.weight", width));
    return specs;
  }

  Mix bind(const BackboneOptions& options, int64_t layer, const std::vector<at::Tensor>& weights) const override {
    return [w = diff_attention_weights(weights, options.mixer), options, offset = lambda_offset(layer)](
               const MixerInput& in, const Batch& batch, MixerState* state, bool /*training*/) {
      if (!state) return diff_attention(in, w, options, offset, batch, nullptr);
      return stream("diff_attention", in.x, batch, diff_attention_memory(options.mixer, in.x.scalar_type()), *state,
                    [&](MixerState& next) { return diff_attention(in, w, options, offset, batch, &next); });
    };
  }

  bool queries_apart(const BackboneOptions&) const override { return true; }
};

}  // namespace

const TokenMixer& diff_attention_mixer() {
  static const DiffAttentionMixer mixer;
  return mixer;
}

}  // namespace fem
