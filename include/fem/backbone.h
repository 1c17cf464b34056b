#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fem/mixer.h"
#include "fem/options.h"
#include "fem/state.h"

namespace fem {

// What mixes the tokens of a block, a row each of src/models/token_mixers.cpp: a Free Energy Mixer, or plain attention
// on torch's fused kernels and others to compare it with.
enum class BlockMixer {
  kFem,
  kAttention,
  kDiffAttention,
  kHyena,
  kDeltaNet,
  kGatedDeltaNet,
  kMamba2,
  kNewton,
  kNewtonLight,
  kLinearDescent,
  kGatedDescent
};
template <>
struct Spelling<BlockMixer> {
  static constexpr std::array values{std::pair{std::string_view("fem"), BlockMixer::kFem},
                                     std::pair{std::string_view("attention"), BlockMixer::kAttention},
                                     std::pair{std::string_view("diff_attention"), BlockMixer::kDiffAttention},
                                     std::pair{std::string_view("hyena"), BlockMixer::kHyena},
                                     std::pair{std::string_view("delta_net"), BlockMixer::kDeltaNet},
                                     std::pair{std::string_view("gated_delta_net"), BlockMixer::kGatedDeltaNet},
                                     std::pair{std::string_view("mamba2"), BlockMixer::kMamba2},
                                     std::pair{std::string_view("newton"), BlockMixer::kNewton},
                                     std::pair{std::string_view("newton_light"), BlockMixer::kNewtonLight},
                                     std::pair{std::string_view("linear_descent"), BlockMixer::kLinearDescent},
                                     std::pair{std::string_view("gated_descent"), BlockMixer::kGatedDescent}};
};

// By which covariance newton (key, value) and newton_light (diagonal, isotropic) precondition attention.
enum class Curvature { kKey, kValue, kDiagonal, kIsotropic };
template <>
struct Spelling<Curvature> {
  static constexpr std::array values{std::pair{std::string_view("key"), Curvature::kKey},
                                     std::pair{std::string_view("value"), Curvature::kValue},
                                     std::pair{std::string_view("diagonal"), Curvature::kDiagonal},
                                     std::pair{std::string_view("isotropic"), Curvature::kIsotropic}};
};

// How a block adds what its mixer says, a row each of src/models/residual.cpp: x + y, with a learned factor, or by a
// velocity that keeps some of the updates of earlier blocks.
enum class ResidualRule { kPlain, kGain, kMomentum, kNesterov, kNesterovQuery };
template <>
struct Spelling<ResidualRule> {
  static constexpr std::array values{std::pair{std::string_view("plain"), ResidualRule::kPlain},
                                     std::pair{std::string_view("gain"), ResidualRule::kGain},
                                     std::pair{std::string_view("momentum"), ResidualRule::kMomentum},
                                     std::pair{std::string_view("nesterov"), ResidualRule::kNesterov},
                                     std::pair{std::string_view("nesterov_query"), ResidualRule::kNesterovQuery}};
};

// The hidden layer of a block's MLP: silu(gate x) * up x, or gelu(up x), which has two matrices instead of three.
enum class MlpType { kSwiglu, kGelu };
template <>
struct Spelling<MlpType> {
  static constexpr std::array values{std::pair{std::string_view("swiglu"), MlpType::kSwiglu},
                                     std::pair{std::string_view("gelu"), MlpType::kGelu}};
};

inline constexpr int64_t kMostLayers = 1 << 14;

// Pre-norm blocks of token mixer and MLP, and a norm after the last.
struct BackboneOptions {
  int64_t n_embd = 0;
  int64_t n_head = 0;
  int64_t n_layer = 0;
  int64_t mlp_width = 0;
  MlpType mlp = MlpType::kSwiglu;
  double norm_eps = 1e-5;
  double dropout = 0.0;
  BlockMixer block_mixer = BlockMixer::kFem;
  ResidualRule residual = ResidualRule::kPlain;
  std::optional<Curvature> curvature;  // unset: key of newton, diagonal of newton_light
  double rho = 0;                      // newton, by keys: share of -q in the gradient that is preconditioned
  MixerOptions mixer;                  // n_embd and n_head follow the backbone's; causal = false: an encoder
};

// Calls visit(name, field, help) for every field but mixer.
template <typename Options, typename Visitor>
void visit_backbone_options(Options& o, Visitor&& visit) {
  visit("n_embd", o.n_embd, "model width D");
  visit("n_head", o.n_head, "heads H");
  visit("n_layer", o.n_layer, "blocks");
  visit("mlp_width", o.mlp_width, "hidden width of the MLP");
  visit("mlp", o.mlp, "swiglu: three matrices; gelu: two");
  visit("norm_eps", o.norm_eps, "added to the mean square in RMSNorm");
  visit("dropout", o.dropout, "probability of dropping an element of what a mixer or an MLP adds, in training");
  visit("block_mixer", o.block_mixer,
        "fem, or to compare with it: attention (plain, on torch's kernels), diff_attention, hyena, delta_net, "
        "gated_delta_net, mamba2; and attention as descent on an energy: newton, newton_light, linear_descent, "
        "gated_descent");
  visit("residual", o.residual,
        "plain: x + y; gain: x + a y, a learned; momentum, nesterov or nesterov_query: by a velocity, with learned "
        "coefficients");
  visit("curvature", o.curvature, "newton: key (default) or value; newton_light: diagonal (default) or isotropic");
  visit("rho", o.rho, "newton by keys: share of -q in the gradient that is preconditioned");
}

// Every parameter of a configuration in a fixed order, without allocating it.
std::vector<ParameterSpec> backbone_parameters(const BackboneOptions& options);

// What a backbone remembers of the tokens it has seen. Copies are snapshots, as a MixerState's.
struct BackboneState {
  std::vector<MixerState> layers;

  BackboneState select(const at::Tensor& batch_index) const;  // rows by index: reorder, repeat or drop
};

// The name and value of everything a forward pass makes, in order, for finding where numbers stop being finite.
using Trace = std::vector<std::pair<std::string, at::Tensor>>;

class BoundBackbone;

// The body of a model: hidden states x [B, T, D] -> [B, T, D], normed.
class BackboneImpl : public torch::nn::Module {
 public:
  explicit BackboneImpl(const BackboneOptions& options);

  // batch: padding, or the borders of sequences packed in one row.
  at::Tensor forward(const at::Tensor& x, const Batch& batch = {});
  // Continues where the state stands and moves it on. Causal only, without gradients.
  at::Tensor forward(const at::Tensor& x, BackboneState& state, const Batch& batch = {});

  Trace trace(const at::Tensor& x, const Batch& batch = {});

  const BackboneOptions options;
  bool recompute = false;  // trade time for memory: keep only the input of each block for backward

 private:
  std::shared_ptr<const BoundBackbone> bound_;
};

class Backbone : public torch::nn::ModuleHolder<BackboneImpl> {
 public:
  using torch::nn::ModuleHolder<BackboneImpl>::ModuleHolder;
  using Impl = BackboneImpl;

  template <typename... Arguments>
  at::Tensor operator()(Arguments&&... arguments) const {
    return impl_->forward(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace fem
