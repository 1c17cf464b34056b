#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <ostream>

#include "bench/benchmarks.h"
#include "bench/opponent.h"
#include "fem/mixer.h"
#include "util/table.h"

namespace fem::bench {
namespace {

constexpr double kMemoryTarget = 1.3;

struct Targets {
  std::optional<double> forward, training, without_conditioner;
};

// Long sequences leave the projections behind, so more is asked of the softmax prior there. The others are measured at
// T 2048, where attention's quadratic part is not yet much.
Targets targets_of(PriorType prior, const Shape& s) {
  if (prior == PriorType::kSoftmax) {
    const bool is_long = s.length >= 4096;
    return {is_long ? 0.92 : 1.00, is_long ? 0.85 : 0.95, 0.88};
  }
  if (s.name != "S2") return {};
  return {{}, prior == PriorType::kMamba ? 1.5 : 0.75, {}};
}

class MixerLayer {
 public:
  MixerLayer(PriorType prior, const Shape& s, bool conditioner) : mixer_(equal_options(prior, s, conditioner)) {}

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
  for (const PriorType prior : settings.priors)
    for (const Shape& s : settings.shapes)
      parameters.add({spelled(prior) + " " + s.name, count(MixerLayer(prior, s, true)),
                      count(MixerLayer(prior, s, false)), count(AttentionLayer(s))});
  out << parameters.str() << "\n" << std::flush;

  Recorder recorder("layer", "torch sdpa layer", settings, 3);
  for (const PriorType prior : settings.priors)
    for (const Shape& s : settings.shapes) {
      const std::string name = spelled(prior) + " " + s.name;
      const Targets targets = targets_of(prior, s);
      const MixerLayer mixer(prior, s, true), plain_mixer(prior, s, false);
      const AttentionLayer attention(s);
      recorder.time(name + " forward", {forward_of(mixer, s), forward_of(attention, s)}, targets.forward);
      recorder.time(name + " forward+backward", {training_of(mixer, s), training_of(attention, s)}, targets.training);
      recorder.time(name + " forward without C", {forward_of(plain_mixer, s), forward_of(attention, s)},
                    targets.without_conditioner);
      recorder.memory(name + " memory", {training_of(mixer, s), training_of(attention, s)}, kMemoryTarget);
    }
  return recorder.cases();
}

}  // namespace fem::bench
