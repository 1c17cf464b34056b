// hyena, of order 2: y = W_o (x2 * (h * (x1 * v))). v, x1 and x2 are projections through a short convolution; h is a
// filter as long as the text, one a channel (models/long_convolution.h).
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "mixer/streaming.h"
#include "models/causal_tokens.h"
#include "models/long_convolution.h"
#include "models/matrix_state.h"
#include "models/token_mixer.h"
#include "nn/linear.h"
#include "nn/parameters.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr int64_t kTaps = 3;  // of the short convolution
constexpr int64_t kLeastHyena = 8;

std::vector<ParameterSpec> hyena_parameters(const BackboneOptions& options, int64_t width) {
  std::vector<ParameterSpec> specs;
  declare_linear(specs, "input", options.n_embd, 3 * width, options.mixer.bias);
  specs.push_back({"convolution.weight", {3 * width, kTaps}, ParameterSpec::Init::kNormal, std::sqrt(1.0 / kTaps)});
  declare_filter(specs, width, std::clamp<int64_t>(options.n_embd / 4, 4, 64));
  declare_linear(specs, "output", width, options.n_embd, options.mixer.bias);
  return specs;
}

// Channels, such that all parameters are 4 D^2: the convolutions' own are taken from the projections.
int64_t hyena_width(const BackboneOptions& options) {
  int64_t width = 0;
  match_attention(options, width, [&] { return hyena_parameters(options, width); });
  return width;
}

struct HyenaWeights {
  LinearWeights input, output;
  at::Tensor convolution;
  FilterWeights filter;
};

HyenaWeights hyena_weights(const std::vector<at::Tensor>& weights, bool bias) {
  auto next = weights.begin();
  const auto linear = [&](bool with_bias) {
    const at::Tensor weight = *next++;
    return LinearWeights{weight, with_bias ? *next++ : at::Tensor()};
  };
  HyenaWeights w;
  w.input = linear(bias);
  w.convolution = *next++;
  w.filter.features = linear(true);
  w.filter.hidden = linear(true);
  w.filter.output = *next++;
  w.output = linear(bias);
  return w;
}

at::Tensor hyena(const at::Tensor& x, const HyenaWeights& w, const Batch& batch, MixerState* state) {
  const CausalTokens tokens(x, batch);
  const at::Tensor projected = project(tokens.real_first(x), {w.input})[0];
  const auto parts = convolve(projected, w.convolution, tokens, /*silu=*/false, state).chunk(3, -1);
  const at::Tensor convolved = long_convolution(parts[0] * parts[1], w.filter, tokens, batch, state);
  return tokens.as_they_were(project(convolved * parts[2], {w.output})[0]);
}

Memory hyena_memory(int64_t width, at::ScalarType dtype) {
  Memory memory;
  memory.layer = "hyena";
  memory.caches = {long_convolution_memory(width, dtype)};
  memory.accumulators = {convolution_memory(3 * width, kTaps, dtype)};
  return memory;
}

class HyenaMixer final : public TokenMixer {
 public:
  void check(const BackboneOptions& options) const override {
    FEM_CHECK(options.mixer.causal, "hyena: expected mixer.causal = true, got false; it is causal by nature");
    check_taken(options.mixer, "hyena", {"bias"});
    FEM_CHECK(options.n_embd >= kLeastHyena, "hyena: expected n_embd of at least ", kLeastHyena,
              ", of whose parameters its filter takes a part, got ", options.n_embd);
  }

  std::vector<ParameterSpec> parameters(const BackboneOptions& options, int64_t) const override {
    return hyena_parameters(options, hyena_width(options));
  }

  Mix bind(const BackboneOptions& options, int64_t, const std::vector<at::Tensor>& weights) const override {
    return [w = hyena_weights(weights, options.mixer.bias)](const at::Tensor& x, const Batch& batch, MixerState* state,
                                                            bool /*training*/) {
      if (!state) return hyena(x, w, batch, nullptr);
      return stream("hyena", x, batch, hyena_memory(w.filter.output.size(0), x.scalar_type()), *state,
                    [&](MixerState& next) { return hyena(x, w, batch, &next); });
    };
  }
};

}  // namespace

const TokenMixer& hyena_mixer() {
  static const HyenaMixer mixer;
  return mixer;
}

}  // namespace fem
