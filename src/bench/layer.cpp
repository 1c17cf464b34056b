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

constexpr double kMemoryTarget = 1.3, kWithoutConditioner = 0.88;

struct Targets {
  std::optional<double> forward, training, without_conditioner;
};

// Long sequences leave the projections behind, so more is asked of the softmax prior there. The others are measured at
// T 2048, where attention's quadratic part is not yet much.
Targets targets_of(PriorType prior, const Shape& s) {
  if (prior == PriorType::kSoftmax) {
    if (s.length >= 8192) return {0.90, 0.80, kWithoutConditioner};
    if (s.length >= 4096) return {0.92, 0.85, kWithoutConditioner};
    return {1.00, 0.95, kWithoutConditioner};
  }
  if (s.name != "S2") return {};
  return {{}, prior == PriorType::kMamba ? 1.5 : 0.75, {}};
}

class MixerLayer {
 public:
  explicit MixerLayer(const MixerOptions& options) : mixer_(options) {}

  at::Tensor forward(const at::Tensor& x) const { return mixer_.ptr()->forward(x); }
  std::vector<at::Tensor> parameters() const { return mixer_->parameters(); }

 private:
  FreeEnergyMixer mixer_;
};

// The same mixer with the conditioner as wide as the paper has it, a sixteenth of the values; the authors' default
// is 64.
MixerOptions with_the_papers_conditioner(MixerOptions options) {
  MixerOptions paper = options;
  paper.dialect = Dialect::kPaper;
  options.conv_hidden = sizes_of(paper).conditioner;
  return options;
}

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
  Table parameters({"parameters", "mixer", "H_c = E/16", "without C", "sdpa layer"});
  for (const PriorType prior : settings.priors)
    for (const Shape& s : settings.shapes)
      parameters.add({spelled(prior) + " " + s.name, count(MixerLayer(equal_options(prior, s))),
                      count(MixerLayer(with_the_papers_conditioner(equal_options(prior, s)))),
                      count(MixerLayer(equal_options(prior, s, false))), count(AttentionLayer(s))});
  out << parameters.str() << "\n" << std::flush;

  Recorder recorder("layer", "torch sdpa layer", settings, 3);
  for (const PriorType prior : settings.priors)
    for (const Shape& s : settings.shapes) {
      const MixerOptions options = equal_options(prior, s), plain_options = equal_options(prior, s, false);
      const Configuration configuration = mixer_configuration(options, s);
      const Flops our_flops = mixer_flops(options, s), their_flops = attention_layer_flops(s);
      const Targets targets = targets_of(prior, s);
      const MixerLayer mixer(options), plain_mixer(plain_options);
      const AttentionLayer attention(s);
      recorder.time(configuration, "forward",
                    {forward_of(mixer, s), forward_of(attention, s), {our_flops.forward}, {their_flops.forward}},
                    targets.forward);
      recorder.time(
          configuration, "forward+backward",
          {training_of(mixer, s), training_of(attention, s), {our_flops.training()}, {their_flops.training()}},
          targets.training);
      recorder.time(mixer_configuration(plain_options, s), "forward without C",
                    {forward_of(plain_mixer, s),
                     forward_of(attention, s),
                     {mixer_flops(plain_options, s).forward},
                     {their_flops.forward}},
                    targets.without_conditioner);
      const MixerOptions narrow_options = with_the_papers_conditioner(options);
      const Flops narrow_flops = mixer_flops(narrow_options, s);
      const MixerLayer narrow(narrow_options);
      recorder.time(mixer_configuration(narrow_options, s), "forward E/16",
                    {forward_of(narrow, s), forward_of(attention, s), {narrow_flops.forward}, {their_flops.forward}},
                    {});
      recorder.time(
          mixer_configuration(narrow_options, s), "forward+backward E/16",
          {training_of(narrow, s), training_of(attention, s), {narrow_flops.training()}, {their_flops.training()}}, {});
      recorder.memory(configuration, {training_of(mixer, s), training_of(attention, s)}, kMemoryTarget);
    }
  return recorder.cases();
}

}  // namespace fem::bench
