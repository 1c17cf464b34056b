#include "mixer/inner_gate.h"

#include <ATen/ATen.h>

#include "mixer/parts.h"
#include "util/check.h"

namespace fem {

void set_inner_gate(const MixerWeights& weights, const MixerOptions& options, const at::Tensor& channels,
                    double lambda) {
  constexpr double kSaturated = 80;  // sigmoid(80) is 1 to the last bit, sigmoid(-80) is 1e-35
  FEM_CHECK(options.has_inner_gate() && options.bias, "set_inner_gate: expected a layer with inner gate and biases");
  const at::NoGradGuard no_gradients;
  weights.temperature_gate.weight.masked_fill_(channels.unsqueeze(-1), 0);
  weights.temperature_gate.bias.masked_fill_(channels, lambda > 0.5 ? kSaturated : -kSaturated);
  // The conditioner's columns of this gate come after those of all parts before the gates.
  const MixerSizes sizes = sizes_of(options);
  int64_t before = 0;
  visit_parts(options, sizes, weights, [&](const Part& part, const LinearWeights&) {
    if (part.conditioned == Conditioned::kBeforeGates) before += part.shape[0];
  });
  for (const ConditionerWeights* direction : {&weights.forward, &weights.backward})
    if (direction->out_proj.defined()) direction->out_proj.narrow(1, before, sizes.value).masked_fill_(channels, 0);
}

}  // namespace fem
