#include "experiments/argmax/model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "fem/ops/gated_read.h"
#include "fem/ops/softmax_read.h"
#include "nn/parameters.h"
#include "priors/prior.h"

namespace fem {
namespace {

// Values of the full width, queries and keys as wide; no positions and no conditioner, so all a mixer has is its prior.
MixerOptions layer_options(const ArgmaxConfig& config) {
  MixerOptions options;
  options.n_embd = options.fem_dim.emplace(config.dim);
  options.n_head = config.heads;
  options.qk_dim = config.dim;
  options.prior_type = argmax_prior(config);
  options.use_rope = options.use_conv = false;
  return options;
}

}  // namespace

ArgmaxModel::ArgmaxModel(const ArgmaxConfig& config) : config_(config), options_(layer_options(config)) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(config.seed));
  const auto add = [&](const ParameterSpec& spec) { parameters_[spec.name] = initial_value(spec, generator); };
  // The prior's come first so that both mixers start from the same one.
  for (const Part& part : prior_of(options_.prior_type).parts(options_, sizes_of(options_)))
    for (const ParameterSpec& spec : parameters_of(part)) add(spec);
  if (config.mixer == "fem") {
    std::vector<ParameterSpec> gate;
    declare_linear(gate, "W_lambda", config.dim, config.dim, /*bias=*/true);
    for (const ParameterSpec& spec : gate) add(spec);
    parameters_["_beta_param"] = at::full({config.dim}, options_.beta_max_init);
  }
  for (auto& [name, parameter] : parameters_) parameter.set_requires_grad(true);
}

at::Tensor ArgmaxModel::linear(const std::string& name, const at::Tensor& x) const {
  return at::linear(x, parameters_.at(name + ".weight"), parameters_.at(name + ".bias"));
}

// The read of the last token.
Read ArgmaxModel::read(const at::Tensor& x, const at::Tensor& value, const std::optional<at::Tensor>& beta) const {
  const int64_t last = x.size(1) - 1;
  if (options_.prior_type == PriorType::kSoftmax) {  // alone in costing less when only one token reads
    const auto heads = [&](const at::Tensor& rows) { return rows.unflatten(-1, {config_.heads, -1}); };
    return softmax_read(heads(linear("W_q", x.slice(1, last))), heads(linear("W_k", x)), value, beta);
  }
  const Prior& prior = prior_of(options_.prior_type);
  const MixerSizes sizes = sizes_of(options_);
  std::vector<AppliedPart> bound;
  for (const Part& part : prior.parts(options_, sizes)) {
    const std::string name = part.name->text;
    if (part.kind == Part::Kind::kParameter)
      bound.push_back({part, {parameters_.at(name), {}}});
    else
      bound.push_back({part, {parameters_.at(name + ".weight"), parameters_.at(name + ".bias")}});
  }
  const AppliedParts parts(x, bound);
  const Read all = prior.read({parts, value, beta, at::arange(x.size(1)), options_, sizes, {}, nullptr});
  return {all.mean.slice(1, last), beta ? all.free_energy.slice(1, last) : at::Tensor()};
}

at::Tensor ArgmaxModel::forward(const at::Tensor& x) const {
  const auto heads = [&](const at::Tensor& rows) { return rows.unflatten(-1, {config_.heads, -1}); };
  if (config_.mixer == "mean") return read(x, heads(x), std::nullopt).mean.flatten(1);
  const at::Tensor beta = heads(at::softplus(parameters_.at("_beta_param")) + options_.eps);
  const at::Tensor value = clip_value(heads(x), beta, options_.value_logexp_cap);
  const at::Tensor gate = heads(linear("W_lambda", x.slice(1, x.size(1) - 1)));
  return gated_read(read(x, value, beta), gate, std::nullopt).flatten(1);
}

int64_t ArgmaxModel::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : parameters_) count += parameter.numel();
  return count;
}

}  // namespace fem
