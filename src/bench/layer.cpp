#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <ostream>

#include "bench/benchmarks.h"
#include "fem/mixer.h"
#include "fem/ops/rotary.h"
#include "util/table.h"

namespace fem::bench {
namespace {

constexpr double kMemoryTarget = 1.3, kWithoutConditionerTarget = 0.88;

// Long sequences leave the projections behind, so more is asked of them.
bool is_long(const Shape& s) { return s.length >= 4096; }
double forward_target(const Shape& s) { return is_long(s) ? 0.92 : 1.00; }
double training_target(const Shape& s) { return is_long(s) ? 0.85 : 0.95; }

// What a user would pick instead: width D, four projections with biases, the same rotary positions, torch's fused
// attention. Its 4 D^2 + 4 D parameters are the mixer's without the conditioner.
class AttentionLayer {
 public:
  explicit AttentionLayer(const Shape& s) : shape_(s) {
    for (int i = 0; i < 4; ++i) {
      parameters_.push_back((at::randn({s.dim, s.dim}) * 0.02).set_requires_grad(true));
      parameters_.push_back(at::zeros({s.dim}).set_requires_grad(true));
    }
  }

  at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor positions = at::arange(shape_.length);
    const auto heads = [&](const at::Tensor& rows) {
      return rows.view({shape_.batch, shape_.length, shape_.heads, -1});
    };
    const at::Tensor query = rotary(heads(linear(0, x)), positions), key = rotary(heads(linear(1, x)), positions);
    const at::Tensor value = heads(linear(2, x));
    const at::Tensor read = at::scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2),
                                                             value.transpose(1, 2), {}, 0.0, /*is_causal=*/true);
    return linear(3, read.transpose(1, 2).reshape({shape_.batch, shape_.length, shape_.dim}));
  }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  at::Tensor linear(int i, const at::Tensor& x) const {
    return at::linear(x, parameters_[2 * i], parameters_[2 * i + 1]);
  }

  Shape shape_;
  std::vector<at::Tensor> parameters_;
};

MixerOptions options_of(const Shape& s, bool conditioner) {
  MixerOptions options;
  options.n_embd = s.dim;
  options.n_head = s.heads;
  options.use_conv = conditioner;
  return options;
}

class MixerLayer {
 public:
  MixerLayer(const Shape& s, bool conditioner) : mixer_(options_of(s, conditioner)) {}

  at::Tensor forward(const at::Tensor& x) const { return mixer_.ptr()->forward(x); }
  std::vector<at::Tensor> parameters() const { return mixer_->parameters(); }

 private:
  FreeEnergyMixer mixer_;
};

at::Tensor input_of(const Shape& s) { return at::randn({s.batch, s.length, s.dim}); }

template <typename Layer>
Work forward_of(const Layer& layer, const Shape& s) {
  return [layer, x = input_of(s)] {
    const at::NoGradGuard no_grad;
    layer.forward(x);
  };
}

// A training step without the optimiser, inside a stack: gradients of every parameter and of the input.
template <typename Layer>
Work training_of(const Layer& layer, const Shape& s) {
  const at::Tensor x = input_of(s).set_requires_grad(true);
  std::vector<at::Tensor> inputs = layer.parameters();
  inputs.push_back(x);
  return [layer, x, inputs, gradient = input_of(s)] {
    torch::autograd::grad({layer.forward(x)}, inputs, {gradient}, {}, false, /*allow_unused=*/true);
  };
}

template <typename Layer>
std::string count(const Layer& layer) {
  int64_t n = 0;
  for (const at::Tensor& parameter : layer.parameters()) n += parameter.numel();
  return grouped(n);
}

}  // namespace

std::vector<Case> bench_layer(const Settings& settings, std::ostream& out) {
  Table parameters({"parameters", "mixer", "mixer without C", "sdpa layer"});
  for (const Shape& s : settings.shapes)
    parameters.add({s.name, count(MixerLayer(s, true)), count(MixerLayer(s, false)), count(AttentionLayer(s))});
  out << parameters.str() << "\n" << std::flush;

  Recorder recorder("layer", "torch sdpa layer", settings, 3);
  for (const Shape& s : settings.shapes) {
    const MixerLayer mixer(s, true), plain_mixer(s, false);
    const AttentionLayer attention(s);
    recorder.time(s.name + " forward", {forward_of(mixer, s), forward_of(attention, s)}, forward_target(s));
    recorder.time(s.name + " forward+backward", {training_of(mixer, s), training_of(attention, s)}, training_target(s));
    recorder.time(s.name + " forward without C", {forward_of(plain_mixer, s), forward_of(attention, s)},
                  kWithoutConditionerTarget);
    recorder.memory(s.name + " memory", {training_of(mixer, s), training_of(attention, s)}, kMemoryTarget);
  }
  return recorder.cases();
}

}  // namespace fem::bench
