// mamba2: a state-space model with one decay a head, whose B and C, the keys and queries, are shared by all heads.
//   x, B, C = silu(conv(W u))     dt = softplus(w_dt u + bias)     a = exp(-exp(A_log) dt)     z = W_z u
//   S_t = a S_{t-1} + dt B x^T     y = C S + D x     out = W_out RMSNorm(y * silu(z))
#include <ATen/ATen.h>

#include "fem/ops/rms_norm.h"
#include "fem/ops/swiglu.h"
#include "models/block.h"
#include "models/matrix_state.h"
#include "nn/linear.h"
#include "util/check.h"

namespace fem {
namespace {

struct Mamba2Sizes {
  int64_t heads, state, head;  // the width of B and C, and that of a head's x

  int64_t inner() const { return heads * head; }
  int64_t channels() const { return inner() + 2 * state; }
};

std::vector<ParameterSpec> mamba2_parameters(const BackboneOptions& o, const Mamba2Sizes& sizes) {
  return {matrix_spec("gate.weight", sizes.inner(), o.n_embd),      // z
          matrix_spec("input.weight", sizes.channels(), o.n_embd),  // x, B, C
          matrix_spec("step.weight", sizes.heads, o.n_embd),
          step_bias_spec("step.bias", sizes.heads),
          decay_rate_spec(sizes.heads),
          {"D", {sizes.heads}, ParameterSpec::Init::kConstant, 1.0},
          convolution_spec(sizes.channels()),
          norm_spec("norm.weight", sizes.inner()),
          matrix_spec("output.weight", o.n_embd, sizes.inner())};
}

Mamba2Sizes mamba2_sizes(const BackboneOptions& o) {
  Mamba2Sizes sizes{o.n_head, o.n_embd / o.n_head, 0};
  const auto parameters = [&] { return mamba2_parameters(o, sizes); };
  match_attention(o, sizes.head, parameters);
  match_attention(o, sizes.state, parameters);  // what rounding left
  return sizes;
}

at::Tensor mamba2(const at::Tensor& u, const std::vector<at::Tensor>& w, const Mamba2Sizes& sizes, double eps,
                  const CausalTokens& tokens, MixerState* state) {
  const at::Tensor &gate = w[0], &input = w[1], &step = w[2], &bias = w[3], &A_log = w[4], &D = w[5],
                   &convolution = w[6], &norm = w[7], &output = w[8];
  const std::vector<at::Tensor> projected = project(u, {gate, input, step});
  const at::Tensor convolved = convolve(projected[1], convolution, tokens, /*silu=*/true, state);
  const auto parts = convolved.split_with_sizes({sizes.inner(), sizes.state, sizes.state}, -1);
  const at::Tensor dt = step_of(projected[2], bias), x = parts[0].unflatten(-1, {sizes.heads, sizes.head});
  MatrixInputs in;
  in.query = parts[2].unsqueeze(2);
  in.key = parts[1].unsqueeze(2);
  in.value = x * dt.unsqueeze(-1);
  in.log_decay = log_decay_of(dt, A_log);
  const at::Tensor y = (read_matrix_state(in, tokens, state) + D.unsqueeze(-1) * x).flatten(2).to(norm.scalar_type());
  return project(rms_norm(swiglu(projected[0].to(y.scalar_type()), y), norm, eps), {output})[0];
}

class Mamba2Mixer final : public TokenMixer {
 public:
  void check(const BackboneOptions& o) const override {
    check_recurrent(o, "mamba2");
    FEM_CHECK(o.n_embd % o.n_head == 0, "mamba2: expected n_embd to be a multiple of n_head, got ", o.n_embd, " and ",
              o.n_head);
  }

  std::vector<ParameterSpec> parameters(const BackboneOptions& o, int64_t) const override {
    return mamba2_parameters(o, mamba2_sizes(o));
  }

  Mix bind(const BackboneOptions& o, int64_t, const std::vector<at::Tensor>& weights) const override {
    const Mamba2Sizes sizes = mamba2_sizes(o);
    return causal_mix("mamba2", {sizes.heads, sizes.state, sizes.head}, sizes.channels(),
                      [=, eps = o.norm_eps](const at::Tensor& u, const CausalTokens& tokens, MixerState* state) {
                        return mamba2(u, weights, sizes, eps, tokens, state);
                      });
  }
};

}  // namespace

const TokenMixer& mamba2_mixer() {
  static const Mamba2Mixer mixer;
  return mixer;
}

}  // namespace fem
