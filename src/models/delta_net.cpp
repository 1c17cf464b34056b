// delta_net: heads that write the difference between a value and what they remember under its key.
//   q, k = unit(silu(conv(W x)))     v = silu(conv(W_v x))     b = sigmoid(w_b x)     a head each
//   S_t = (I - b k k^T) S_{t-1} + b k v^T     y = W_o RMSNorm_head(q S)
#include <ATen/ATen.h>

#include "fem/ops/rms_norm.h"
#include "models/block.h"
#include "models/matrix_state.h"
#include "nn/linear.h"
#include "util/check.h"

namespace fem {
namespace {

struct DeltaNetSizes {
  int64_t heads, key, value;  // widths of a head

  int64_t channels() const { return heads * (2 * key + value); }
};

std::vector<ParameterSpec> delta_net_parameters(const BackboneOptions& o, const DeltaNetSizes& sizes) {
  return {matrix_spec("input.weight", sizes.channels(), o.n_embd),  // W_q, W_k, W_v
          matrix_spec("strength.weight", sizes.heads, o.n_embd), convolution_spec(sizes.channels()),
          norm_spec("norm.weight", sizes.value), matrix_spec("output.weight", o.n_embd, sizes.heads * sizes.value)};
}

DeltaNetSizes delta_net_sizes(const BackboneOptions& o) {
  DeltaNetSizes sizes{o.n_head, o.n_embd / o.n_head, 0};
  match_attention(o, sizes.value, [&] { return delta_net_parameters(o, sizes); });
  return sizes;
}

at::Tensor delta_net(const at::Tensor& x, const std::vector<at::Tensor>& w, const DeltaNetSizes& sizes, double eps,
                     const CausalTokens& tokens, MixerState* state) {
  const at::Tensor &input = w[0], &strength = w[1], &convolution = w[2], &norm = w[3], &output = w[4];
  const std::vector<at::Tensor> projected = project(x, {input, strength});
  const at::Tensor convolved = convolve(projected[0], convolution, tokens, /*silu=*/true, state);
  MatrixInputs in = delta_inputs(convolved, sizes.heads, sizes.key);
  in.strength = projected[1].sigmoid();
  const at::Tensor read = read_matrix_state(in, tokens, state).to(norm.scalar_type());
  return project(rms_norm(read, norm, eps).flatten(2), {output})[0];
}

class DeltaNetMixer final : public TokenMixer {
 public:
  void check(const BackboneOptions& o) const override {
    check_recurrent(o, "delta_net");
    FEM_CHECK(o.n_embd % o.n_head == 0, "delta_net: expected n_embd to be a multiple of n_head, got ", o.n_embd,
              " and ", o.n_head);
  }

  std::vector<ParameterSpec> parameters(const BackboneOptions& o, int64_t) const override {
    return delta_net_parameters(o, delta_net_sizes(o));
  }

  Mix bind(const BackboneOptions& o, int64_t, const std::vector<at::Tensor>& weights) const override {
    const DeltaNetSizes sizes = delta_net_sizes(o);
    return causal_mix("delta_net", {sizes.heads, sizes.key, sizes.value}, sizes.channels(),
                      [=, eps = o.norm_eps](const at::Tensor& x, const CausalTokens& tokens, MixerState* state) {
                        return delta_net(x, weights, sizes, eps, tokens, state);
                      });
  }
};

}  // namespace

const TokenMixer& delta_net_mixer() {
  static const DeltaNetMixer mixer;
  return mixer;
}

}  // namespace fem
