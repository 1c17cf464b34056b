#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "fem/options.h"
#include "fem/state.h"

namespace fem {

struct LinearWeights {
  at::Tensor weight, bias;  // [out, in], [out] or undefined
};

struct ConditionerWeights {
  LinearWeights norm;                 // LayerNorm of x; undefined if conv_norm_first is off
  LinearWeights in_f, x_f, shortcut;  // D -> H_c
  LinearWeights ln;                   // LayerNorm of h
  at::Tensor out_proj;                // [H_c, outputs]
};

struct MixerWeights {
  LinearWeights value;               // W_v
  LinearWeights output;              // W_o
  LinearWeights temperature_gate;    // W_lambda
  LinearWeights outer_gate;          // W_gate
  at::Tensor beta_param;             // [E]
  std::vector<LinearWeights> prior;  // what the prior declares, in its order; a parameter that is no layer: the weight
  ConditionerWeights forward, backward;
};

// Which tokens are real and where packed sequences begin.
struct Batch {
  std::optional<at::Tensor> mask;        // [B, T] bool, true = a real token; padding may be left or right
  std::optional<at::Tensor> cu_seqlens;  // [n + 1] int, borders of sequences packed in one row (B = 1)
};

// What a layer is asked with: hidden states and, where queries alone are made of others, those. A tensor is one, and a
// layer without queries takes it as a tensor.
struct MixerInput {
  MixerInput(at::Tensor x, at::Tensor query = {}) : x(std::move(x)), query(std::move(query)) {}
  operator const at::Tensor&() const { return x; }

  at::Tensor x;      // [B, T, D]
  at::Tensor query;  // [B, T, D]; undefined: x
};

// The layer as a function: x [B, T, D] -> y [B, T, D]. With a state, x continues the tokens the state has seen.
at::Tensor mix(const MixerInput& in, const MixerWeights& weights, const MixerOptions& options, const Batch& batch = {},
               MixerState* state = nullptr, bool training = false);

// One parameter of a configuration: the authors' name, its shape, how it starts and whether weight decay is for it.
struct ParameterSpec {
  enum class Init { kNormal, kConstant, kValues };
  std::string name;
  std::vector<int64_t> shape;
  Init init;
  double value;                                 // standard deviation or constant
  std::function<std::vector<double>()> values;  // of kValues: every element
  bool decays = false;  // matrices that multiply activations; not what starts at a place of its own
};

// Every parameter of a configuration in a fixed order, without allocating it.
std::vector<ParameterSpec> mixer_parameters(const MixerOptions& options);

struct Inspection;

class FreeEnergyMixerImpl : public torch::nn::Cloneable<FreeEnergyMixerImpl> {
 public:
  explicit FreeEnergyMixerImpl(const MixerOptions& options);

  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;

  at::Tensor forward(const at::Tensor& x, const Batch& batch = {});
  // Streaming: continues where the state stands and advances it. Causal only, without gradients.
  at::Tensor forward(const at::Tensor& x, MixerState& state, const Batch& batch = {});

  // What it reads at some tokens of x (fem/inspect.h).
  Inspection inspect(const at::Tensor& x, const std::vector<int64_t>& positions, const Batch& batch = {}) const;

  MixerOptions options;
  MixerWeights weights;
};

// The handle: TORCH_MODULE with a call operator that knows both forwards.
class FreeEnergyMixer : public torch::nn::ModuleHolder<FreeEnergyMixerImpl> {
 public:
  using torch::nn::ModuleHolder<FreeEnergyMixerImpl>::ModuleHolder;
  using Impl = FreeEnergyMixerImpl;

  template <typename... Arguments>
  at::Tensor operator()(Arguments&&... arguments) const {
    return impl_->forward(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace fem
