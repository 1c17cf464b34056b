#include "tasks/mad/model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

#include "fem/ops/rms_norm.h"
#include "nn/parameters.h"

namespace fem {
namespace {

constexpr int kDecoderLayers = 2;

}  // namespace

std::vector<ParameterSpec> mad_parameters(const MadOptions& o) {
  const int64_t width = o.model.n_embd;
  std::vector<ParameterSpec> specs{matrix_spec("embedding.weight", o.data.vocab_size, width)};
  for (ParameterSpec& spec : backbone_parameters(o.model)) specs.push_back(std::move(spec));
  if (o.data.kind == MadKind::kCompression) {
    for (int layer = 0; layer < kDecoderLayers; ++layer) {
      const std::string name = "decoder." + std::to_string(layer);
      specs.push_back(norm_spec(name + ".norm.weight", width));
      declare_linear(specs, name + ".linear", width, width, /*bias=*/true);
    }
  }
  declare_linear(specs, "head", width, o.data.vocab_size, /*bias=*/true);
  return specs;
}

MadModel::MadModel(const MadOptions& o, int64_t seed) : options_(o.model), specs_(mad_parameters(o)) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  for (const ParameterSpec& spec : specs_)
    parameters_.push_back(initial_value(spec, generator).set_requires_grad(true));
  auto next = parameters_.begin();
  embedding_ = *next++;
  const auto blocks = static_cast<int64_t>(backbone_parameters(o.model).size());
  backbone_ = std::make_unique<BoundBackbone>(o.model, std::vector<at::Tensor>(next, next + blocks));
  next += blocks;
  if (o.data.kind == MadKind::kCompression)
    for (int layer = 0; layer < kDecoderLayers; ++layer, next += 3) decoder_.push_back({next[0], next[1], next[2]});
  head_ = *next++;
  head_bias_ = *next;
}

at::Tensor sine_positions(int64_t tokens, int64_t width) {
  const int64_t half = width / 2;
  const at::Tensor place = at::arange(half, at::kDouble) / static_cast<double>(std::max<int64_t>(half - 1, 1));
  const at::Tensor angles = at::arange(tokens, at::kDouble).unsqueeze(1) * at::exp(place * -std::log(1e4));
  return at::cat({angles.sin(), angles.cos()}, 1).to(at::kFloat);
}

at::Tensor MadModel::decode(const at::Tensor& encoded) const {
  at::Tensor x = encoded.slice(1, -1) + sine_positions(encoded.size(1), encoded.size(2));
  for (const Layer& layer : decoder_)
    x = at::gelu(at::linear(rms_norm(x, layer.norm, options_.norm_eps), layer.weight, layer.bias));
  return x;
}

at::Tensor MadModel::run(const at::Tensor& tokens, bool training, Trace* trace) const {
  const at::Tensor embedded = at::embedding(embedding_, tokens);
  if (trace) trace->emplace_back("embedding", embedded);
  const BoundBackbone::Call call{.training = training, .trace = trace};
  const at::Tensor hidden =
      decoder_.empty() ? (*backbone_)(embedded, call) : backbone_->norm(decode(backbone_->blocks(embedded, call)));
  const at::Tensor logits = at::linear(hidden, head_, head_bias_);
  if (trace) trace->emplace_back("logits", logits);
  return logits;
}

at::Tensor MadModel::forward(const at::Tensor& tokens, bool training) const { return run(tokens, training, nullptr); }

Trace MadModel::trace(const at::Tensor& tokens) const {
  Trace made;
  run(tokens, /*training=*/true, &made);
  return made;
}

}  // namespace fem
