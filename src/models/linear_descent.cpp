// linear_descent and gated_descent: linear attention as a step down a sum of energies, E_i = -(q.k_i)^2 / (2 sqrt(K)),
// without a normaliser; gated: energies fade by a learned factor a head, g, for every token in between.
//   S_t = g S_{t-1} + k_t v_t^T     y = W_o (q_t S_t / sqrt(K))
// Where weights are tied this is minus the gradient (fem/energy.h, Potential::kLinear): docs/energy.md.
#include <ATen/ATen.h>

#include <cmath>

#include "models/attend.h"
#include "models/matrix_state.h"
#include "nn/linear.h"
#include "util/check.h"

namespace fem {
namespace {

// sigmoid^-1(1 - 2^(-5 - h)) = log(2^(5 + h) - 1), as in retention.
ParameterSpec fading_spec(int64_t heads) {
  const auto values = [heads] {
    std::vector<double> logits;
    for (int64_t head = 0; head < heads; ++head) logits.push_back(std::log(std::exp2(5.0 + head) - 1));
    return logits;
  };
  return {"fading", {heads}, ParameterSpec::Init::kValues, 0, values};
}

at::Tensor linear_descent(const at::Tensor& x, const AttentionWeights& w, const std::optional<at::Tensor>& fading,
                          int64_t heads, const CausalTokens& tokens, MixerState* state) {
  const std::vector<at::Tensor> projected = project(x, {w.query, w.key, w.value});
  const auto by_heads = [&](const at::Tensor& y) { return y.unflatten(-1, {heads, -1}); };
  MatrixInputs in;
  in.query = by_heads(projected[0]) / std::sqrt(static_cast<double>(x.size(2) / heads));
  in.key = by_heads(projected[1]);
  in.value = by_heads(projected[2]);
  if (fading) in.log_decay = at::log_sigmoid(*fading).expand_symint({x.sym_size(0), x.sym_size(1), heads});
  return project(read_matrix_state(in, tokens, state).to(x.scalar_type()).flatten(2), {w.output})[0];
}

class LinearDescentMixer final : public TokenMixer {
 public:
  explicit LinearDescentMixer(bool gated) : gated_(gated), who_(gated ? "gated_descent" : "linear_descent") {}

  void check(const BackboneOptions& o) const override {
    check_recurrent(o, who_, {"bias"});
    FEM_CHECK(o.n_embd % o.n_head == 0, who_, ": expected n_embd to be a multiple of n_head, got ", o.n_embd, " and ",
              o.n_head);
  }

  std::vector<ParameterSpec> parameters(const BackboneOptions& o, int64_t) const override {
    std::vector<ParameterSpec> specs;
    declare_attention(specs, o.mixer);
    if (gated_) specs.push_back(fading_spec(o.n_head));
    return specs;
  }

  Mix bind(const BackboneOptions& o, int64_t, const std::vector<at::Tensor>& weights) const override {
    const int64_t heads = o.n_head, width = o.n_embd / o.n_head;
    return causal_mix(who_, {heads, width, width}, /*channels=*/0,
                      [w = attention_weights(weights, o.mixer), heads,
                       fading = gated_ ? std::optional(weights.back()) : std::nullopt](
                          const at::Tensor& x, const CausalTokens& tokens, MixerState* state) {
                        return linear_descent(x, w, fading, heads, tokens, state);
                      });
  }

 private:
  const bool gated_;
  const char* who_;
};

}  // namespace

const TokenMixer& linear_descent_mixer() {
  static const LinearDescentMixer mixer(/*gated=*/false);
  return mixer;
}

const TokenMixer& gated_descent_mixer() {
  static const LinearDescentMixer mixer(/*gated=*/true);
  return mixer;
}

}  // namespace fem
