#include "tasks/argmax/model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "fem/ops/gated_read.h"
#include "fem/ops/softmax_read.h"
#include "nn/parameters.h"
#include "priors/prior.h"

namespace fem {

MixerOptions argmax_layer(const ArgmaxOptions& options) {
  MixerOptions layer;
  layer.n_embd = layer.fem_dim.emplace(options.dim);
  layer.n_head = options.heads;
  layer.qk_dim = options.dim;
  layer.prior_type = options.prior;
  layer.use_rope = layer.use_conv = false;
  return layer;
}

ArgmaxModel::ArgmaxModel(const ArgmaxOptions& options, int64_t seed)
    : options_(options), layer_(argmax_layer(options)) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  const auto add = [&](const ParameterSpec& spec) {
    parameters_[spec.name] = initial_value(spec, generator);
    if (spec.decays) decayed_.insert(spec.name);
  };
  // The prior's come first so that both mixers start from the same one.
  for (const Part& part : prior_of(layer_.prior_type).parts(layer_, sizes_of(layer_)))
    for (const ParameterSpec& spec : parameters_of(part)) add(spec);
  if (options.mixer == ArgmaxMixer::kFem) {
    std::vector<ParameterSpec> gate;
    declare_linear(gate, "W_lambda", options.dim, options.dim, /*bias=*/true);
    for (const ParameterSpec& spec : gate) add(spec);
    add({"_beta_param", {options.dim}, ParameterSpec::Init::kConstant, layer_.beta_max_init});
  }
  for (auto& [name, parameter] : parameters_) parameter.set_requires_grad(true);
}

at::Tensor ArgmaxModel::linear(const std::string& name, const at::Tensor& x) const {
  return at::linear(x, parameters_.at(name + ".weight"), parameters_.at(name + ".bias"));
}

// The read of the last token.
Read ArgmaxModel::read(const at::Tensor& x, const at::Tensor& value, const std::optional<at::Tensor>& beta) const {
  const int64_t last = x.size(1) - 1;
  if (layer_.prior_type == PriorType::kSoftmax) {  // alone in costing less when only one token reads
    const auto heads = [&](const at::Tensor& rows) { return rows.unflatten(-1, {options_.heads, -1}); };
    return softmax_read(heads(linear("W_q", x.slice(1, last))), heads(linear("W_k", x)), value, beta);
  }
  const Prior& prior = prior_of(layer_.prior_type);
  const MixerSizes sizes = sizes_of(layer_);
  std::vector<AppliedPart> bound;
  for (const Part& part : prior.parts(layer_, sizes)) {
    const std::string name = part.name->text;
    if (part.kind == Part::Kind::kParameter)
      bound.push_back({part, {parameters_.at(name), {}}});
    else
      bound.push_back({part, {parameters_.at(name + ".weight"), parameters_.at(name + ".bias")}});
  }
  const AppliedParts parts(x, bound);
  const Read all = prior.read({parts, value, beta, at::arange(x.size(1)), layer_, sizes, {}, nullptr});
  return {all.mean.slice(1, last), beta ? all.free_energy.slice(1, last) : at::Tensor()};
}

at::Tensor ArgmaxModel::forward(const at::Tensor& x) const {
  const auto heads = [&](const at::Tensor& rows) { return rows.unflatten(-1, {options_.heads, -1}); };
  if (options_.mixer == ArgmaxMixer::kMean) return read(x, heads(x), std::nullopt).mean.flatten(1);
  const at::Tensor beta = heads(at::softplus(parameters_.at("_beta_param")) + layer_.eps);
  const at::Tensor value = clip_value(heads(x), beta, layer_.value_logexp_cap);
  const at::Tensor gate = heads(linear("W_lambda", x.slice(1, x.size(1) - 1)));
  return gated_read(read(x, value, beta), gate, std::nullopt).flatten(1);
}

int64_t ArgmaxModel::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : parameters_) count += parameter.numel();
  return count;
}

}  // namespace fem
