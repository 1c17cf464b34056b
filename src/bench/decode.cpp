#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <vector>

#include "bench/benchmarks.h"
#include "bench/memory.h"
#include "bench/opponent.h"
#include "fem/mixer.h"
#include "util/table.h"

namespace fem::bench {
namespace {

constexpr double kSoftmaxTarget = 0.65;
constexpr int kLayers = 4;  // one after the other, as in a model: no cache of keys and values stays in the processor's

// A mixer that has read shape.length tokens.
class DecodingMixer {
 public:
  DecodingMixer(const MixerOptions& options, const Shape& shape) : mixer_(options) {
    const at::NoGradGuard no_grad;
    for (int64_t done = 0; done < shape.length; done += kPiece)
      mixer_->forward(at::randn({shape.batch, std::min(kPiece, shape.length - done), shape.dim}), state_);
  }

  void step(const at::Tensor& x) { mixer_->forward(x, state_); }

  int64_t state_bytes() const { return bytes_of(state_); }

 private:
  static constexpr int64_t kPiece = 1024;

  FreeEnergyMixer mixer_;
  MixerState state_;
};

template <typename Layer>
using Stack = std::vector<std::shared_ptr<Layer>>;

template <typename Layer, typename... Arguments>
Stack<Layer> stack_of(const Arguments&... arguments) {
  Stack<Layer> stack;
  for (int i = 0; i < kLayers; ++i) stack.push_back(std::make_shared<Layer>(arguments...));
  return stack;
}

template <typename Layer>
Work step_of(const Stack<Layer>& stack, const Shape& shape) {
  return [stack, x = at::randn({shape.batch, 1, shape.dim})] {
    const at::NoGradGuard no_grad;
    for (const auto& layer : stack) layer->step(x);
  };
}

// Blocks of memory that one layer asks for in a step, once its cache has room.
template <typename Layer>
std::string allocations_of(const std::shared_ptr<Layer>& layer, const Shape& shape) {
  const Work step = step_of(Stack<Layer>{layer}, shape);
  step();
  return std::to_string(memory_of(step).allocations);
}

Cost of_all_layers(const Cost& layer) { return {kLayers * layer.flops, kLayers * layer.bytes}; }

}  // namespace

int64_t decode_bytes(const Shape& s, const std::vector<PriorType>& priors) {
  // Our keys and values are 3/4 of attention's; they grow by being copied into more room.
  constexpr double kGrowing = 1.75, kReading = 0.4;
  const bool keeps_tokens = std::count(priors.begin(), priors.end(), PriorType::kSoftmax) > 0;
  const auto cache = static_cast<double>(kLayers * 2 * s.batch * s.length * s.dim * int64_t{sizeof(float)});
  return std::llround(cache * (1 + (keeps_tokens ? kGrowing : kReading)));
}

std::vector<Case> bench_decode(const Settings& settings, std::ostream& out) {
  for (const Shape& s : settings.shapes)
    out << s.name << " takes about " << fixed(static_cast<double>(decode_bytes(s, settings.priors)) / 1e9, 1)
        << " GB of memory\n";
  out << "\n" << std::flush;
  Table memory({"memory of the past", "mixer", "attention", "ratio", "allocations a step", "attention's"});
  Recorder recorder("decode", "torch sdpa layer", settings, 1);
  for (const Shape& s : settings.shapes) {
    const auto attention = stack_of<DecodingAttentionLayer>(s);
    for (const PriorType prior : settings.priors) {
      const MixerOptions options = equal_options(prior, s);
      const Configuration configuration = mixer_configuration(options, s);
      const auto mixers = stack_of<DecodingMixer>(options, s);
      const int64_t ours = mixers[0]->state_bytes(), theirs = attention[0]->cache_bytes();
      const auto mebibytes = [](int64_t bytes) { return fixed(static_cast<double>(bytes) / 1048576, 2) + " MiB"; };
      memory.add({configuration.name(), mebibytes(ours), mebibytes(theirs),
                  fixed(static_cast<double>(ours) / static_cast<double>(theirs), 2), allocations_of(mixers[0], s),
                  allocations_of(attention[0], s)});
      const bool is_softmax = prior == PriorType::kSoftmax;
      recorder.time(configuration, "step",
                    {step_of(mixers, s), step_of(attention, s), of_all_layers(mixer_step_cost(options, s, ours)),
                     of_all_layers(attention_step_cost(s, theirs))},
                    is_softmax ? std::optional(kSoftmaxTarget) : std::nullopt);
    }
  }
  out << memory.str() << "\n";
  return recorder.cases();
}

}  // namespace fem::bench
