// The neural tangent kernel of the value path (the paper's M.3), of the layer's own derivatives.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "fem/mixer.h"
#include "mixer/random_mixer.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

// A softmax layer with both gates. Its gates do not see W_v, as M.3 takes them.
struct Layer {
  Layer() {
    at::manual_seed(6);
    MixerOptions options = small_options();
    options.fem_ratio = 1;
    options.use_conv = false;
    options.use_rope = false;
    mixer = random_mixer(options);
    x = random_tokens(1, kTokens, options);
  }

  // <d y_tj / d W_v, d y_sk / d W_v> for all pairs of outputs, [T, D, T, D].
  at::Tensor kernel() const {
    const at::Tensor y = mixer(x)[0];
    std::vector<at::Tensor> rows;
    for (int64_t i = 0; i < y.numel(); ++i)
      rows.push_back(
          torch::autograd::grad({y.flatten()[i]}, {mixer->weights.value.weight}, {}, /*retain_graph=*/true)[0]
              .flatten());
    const at::Tensor jacobian = at::stack(rows);
    return at::matmul(jacobian, jacobian.t()).view({kTokens, width(), kTokens, width()});
  }

  at::Tensor projected(const LinearWeights& w) const { return at::linear(x, w.weight, w.bias)[0]; }
  at::Tensor by_head(const at::Tensor& all) const { return all.unflatten(-1, {mixer->options.n_head, -1}); }

  // g_tc, [T, E]
  at::Tensor outer_gate() const {
    const at::Tensor raw = by_head(at::softplus(projected(mixer->weights.outer_gate)) + mixer->options.eps);
    return (raw / raw.norm(2, -1, true) * std::sqrt(static_cast<double>(raw.size(-1)))).flatten(1);
  }

  // w_tc(i) = (1 - lambda_tc) p_t(i) + lambda_tc q_tc(i), [T, E, T]
  at::Tensor token_weights() const {
    const MixerWeights& w = mixer->weights;
    const at::Tensor query = by_head(projected(w.prior[0])), key = by_head(projected(w.prior[1]));
    const at::Tensor later = at::ones({kTokens, kTokens}, at::kBool).triu(1);
    const at::Tensor scores = (at::einsum("thk,ihk->hti", {query, key}) / std::sqrt(static_cast<double>(key.size(-1))))
                                  .masked_fill(later, -INFINITY);
    const at::Tensor beta = by_head(at::softplus(w.beta_param) + mixer->options.eps);
    const at::Tensor energy = (beta * by_head(projected(w.value))).permute({1, 2, 0});  // [H, V, T]
    const at::Tensor prior = scores.softmax(-1).unsqueeze(2);                           // [H, T, 1, T]
    const at::Tensor posterior = (scores.unsqueeze(2) + energy.unsqueeze(1)).softmax(-1);
    const at::Tensor lambda = by_head(projected(w.temperature_gate).sigmoid()).transpose(0, 1).unsqueeze(-1);
    return ((1 - lambda) * prior + lambda * posterior).transpose(0, 1).flatten(1, 2);
  }

  // sum_{i,r} w_tc(i) w_sc(r) <x_i, x_r>, [T, T, E]
  at::Tensor of_channels() const {
    const at::Tensor w = token_weights();
    return at::einsum("tci,scr,ir->tsc", {w, w, at::matmul(x[0], x[0].t())});
  }

  int64_t width() const { return mixer->options.n_embd; }

  static constexpr int64_t kTokens = 6;
  FreeEnergyMixer mixer{nullptr};
  at::Tensor x;
};

TEST(ValueKernel, IsThatOfThePaperWithTheGateBeforeTheOutput) {
  const Layer layer;
  // b_tj,c = W_o[j, c] g_tc: eq. 11 gates what is read, before W_o.
  const at::Tensor directions = layer.outer_gate().unsqueeze(1) * layer.mixer->weights.output.weight;
  const at::Tensor expected = at::einsum("tjc,skc,tsc->tjsk", {directions, directions, layer.of_channels()});
  EXPECT_TRUE(close(layer.kernel(), expected, kFloat64));
}

// M.1 and M.3 have o = g (W_o u), the gate after the output projection: another layer's kernel.
TEST(Errata, TheGateAfterTheOutputProjectionIsAnotherLayers) {
  const Layer layer;
  const at::Tensor gate = layer.outer_gate(), output = layer.mixer->weights.output.weight;
  const at::Tensor printed = at::einsum("tj,sk,jc,kc,tsc->tjsk", {gate, gate, output, output, layer.of_channels()});
  const at::Tensor actual = layer.kernel();
  EXPECT_GT(((printed - actual).norm() / actual.norm()).item<double>(), 0.1);
}

}  // namespace
}  // namespace fem::testing
