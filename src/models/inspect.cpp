#include "fem/inspect.h"

#include <ATen/ATen.h>

#include "models/backbone.h"
#include "models/token_mixer.h"
#include "util/check.h"

namespace fem {
ModelInspector::ModelInspector(const torch::nn::Module& model, const BackboneOptions& options, const Trace& trace,
                               const Batch& batch)
    : options_(options), batch_(batch) {
  const auto named = model.named_parameters();
  for (int64_t layer = 0; layer < options.n_layer; ++layer) {
    const std::string block = "blocks." + std::to_string(layer) + ".";
    const at::Tensor x = found(trace, block + "mixer_norm");
    FEM_CHECK(x.defined(), "inspect: expected a trace of a model with blocks, got one without ", block,
              "mixer_norm; a forecaster with body dlinear has no mixer to look at");
    std::vector<at::Tensor> weights;
    for (const ParameterSpec& spec : token_mixer_of(options.block_mixer).parameters(options, layer))
      weights.push_back(named[block + "mixer." + spec.name].detach());
    layers_.push_back({{x, found(trace, block + "mixer_query")}, std::move(weights)});
  }
}

int64_t ModelInspector::tokens() const { return layers_.front().in.x.size(1); }

int64_t ModelInspector::width() const {
  return options_.block_mixer == BlockMixer::kFem ? sizes_of(options_.mixer).value : options_.n_embd;
}

Inspection ModelInspector::layer(int64_t layer, const std::vector<int64_t>& positions) const {
  FEM_CHECK(layer >= 0 && layer < layers(), "inspect: expected a layer from 0 to ", layers() - 1, ", got ", layer);
  const Layer& one = layers_[static_cast<size_t>(layer)];
  return token_mixer_of(options_.block_mixer).inspect(options_, one.weights, one.in, batch_, positions);
}

}  // namespace fem
