// gated_delta_net: delta_net whose heads also forget, and whose reads are gated.
//   a_t = exp(-exp(A_log) softplus(w_a x + bias))     S_t = a_t (I - b k k^T) S_{t-1} + b k v^T
//   y = W_o (RMSNorm_head(q S) * silu(W_g x))
#include <ATen/ATen.h>

#include "fem/ops/rms_norm.h"
#include "fem/ops/swiglu.h"
#include "models/block.h"
#include "models/matrix_state.h"
#include "nn/linear.h"
#include "util/check.h"

namespace fem {
namespace {

struct GatedDeltaNetSizes {
  int64_t heads, key, value;  // widths of a head

  int64_t channels() const { return heads * (2 * key + value); }
};

std::vector<ParameterSpec> gated_delta_net_parameters(const BackboneOptions& o, const GatedDeltaNetSizes& sizes) {
  const int64_t values = sizes.heads * sizes.value;
  return {matrix_spec("input.weight", sizes.channels(), o.n_embd),  // W_q, W_k, W_v
          matrix_spec("strength.weight", sizes.heads, o.n_embd),
          matrix_spec("decay.weight", sizes.heads, o.n_embd),
          step_bias_spec("decay.bias", sizes.heads),
          decay_rate_spec(sizes.heads),
          convolution_spec(sizes.channels()),
          norm_spec("norm.weight", sizes.value),
          matrix_spec("gate.weight", values, o.n_embd),
          matrix_spec("output.weight", o.n_embd, values)};
}

GatedDeltaNetSizes gated_delta_net_sizes(const BackboneOptions& o) {
  GatedDeltaNetSizes sizes{o.n_head, o.n_embd / (2 * o.n_head), 0};
  match_attention(o, sizes.value, [&] { return gated_delta_net_parameters(o, sizes); });
  return sizes;
}

at::Tensor gated_delta_net(const at::Tensor& x, const std::vector<at::Tensor>& w, const GatedDeltaNetSizes& sizes,
                           double eps, const CausalTokens& tokens, MixerState* state) {
  const at::Tensor &input = w[0], &strength = w[1], &decay = w[2], &bias = w[3], &A_log = w[4], &convolution = w[5],
                   &norm = w[6], &gate = w[7], &output = w[8];
  const std::vector<at::Tensor> projected = project(x, {input, strength, decay, gate});
  const at::Tensor convolved = convolve(projected[0], convolution, tokens, /*silu=*/true, state);
  MatrixInputs in = delta_inputs(convolved, sizes.heads, sizes.key);
  in.strength = projected[1].sigmoid();
  in.log_decay = log_decay_of(step_of(projected[2], bias), A_log);
  const at::Tensor read = rms_norm(read_matrix_state(in, tokens, state).to(norm.scalar_type()), norm, eps).flatten(2);
  return project(swiglu(projected[3].to(read.scalar_type()), read), {output})[0];
}

class GatedDeltaNetMixer final : public TokenMixer {
 public:
  void check(const BackboneOptions& o) const override {
    check_recurrent(o, "gated_delta_net");
    FEM_CHECK(o.n_embd % (2 * o.n_head) == 0, "gated_delta_net: expected n_embd to be a multiple of twice n_head, got ",
              o.n_embd, " and ", o.n_head);
  }

  std::vector<ParameterSpec> parameters(const BackboneOptions& o, int64_t) const override {
    return gated_delta_net_parameters(o, gated_delta_net_sizes(o));
  }

  Mix bind(const BackboneOptions& o, int64_t, const std::vector<at::Tensor>& weights) const override {
    const GatedDeltaNetSizes sizes = gated_delta_net_sizes(o);
    return causal_mix("gated_delta_net", {sizes.heads, sizes.key, sizes.value}, sizes.channels(),
                      [=, eps = o.norm_eps](const at::Tensor& x, const CausalTokens& tokens, MixerState* state) {
                        return gated_delta_net(x, weights, sizes, eps, tokens, state);
                      });
  }
};

}  // namespace

const TokenMixer& gated_delta_net_mixer() {
  static const GatedDeltaNetMixer mixer;
  return mixer;
}

}  // namespace fem
