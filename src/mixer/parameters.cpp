#include "mixer/parameters.h"

#include <ATen/ATen.h>

#include "mixer/conditioner.h"
#include "priors/prior.h"
#include "priors/projection.h"

namespace fem {
namespace {

using Init = ParameterSpec::Init;

class Visitor {
 public:
  Visitor(const MixerOptions& options, const std::function<void(const ParameterSpec&, at::Tensor&)>& visit)
      : options_(options), sizes_(sizes_of(options)), visit_(visit) {}

  void walk(MixerWeights& w) const {
    const int64_t width = options_.n_embd;
    linear("W_v", width, sizes_.value, w.value);
    linear("W_o", sizes_.value, width, w.output);
    const auto specs = prior_of(options_.prior_type).parameters(options_, sizes_);
    w.prior.resize(specs.size());
    for (size_t i = 0; i < specs.size(); ++i) visit_(specs[i], w.prior[i]);
    if (options_.has_inner_gate()) linear("W_lambda", width, sizes_.value, w.temperature_gate);
    if (options_.use_outer_gate) linear("W_gate", width, sizes_.value, w.outer_gate);
    visit_({"_beta_param", {sizes_.value}, Init::kConstant, options_.beta_max_init}, w.beta_param);
    if (options_.use_conv) conditioner("tdc.fwd.", w.forward);
    if (options_.use_conv && options_.conv_bidirectional) conditioner("tdc.bwd.", w.backward);
  }

 private:
  void linear(const std::string& name, int64_t in, int64_t out, LinearWeights& w) const {
    std::vector<ParameterSpec> specs;
    declare_linear(specs, name, in, out, options_.bias);
    visit_(specs[0], w.weight);
    if (options_.bias) visit_(specs[1], w.bias);
  }

  void norm(const std::string& name, int64_t width, LinearWeights& w) const {
    visit_({name + ".weight", {width}, Init::kConstant, 1.0}, w.weight);
    if (options_.bias) visit_({name + ".bias", {width}, Init::kConstant, 0.0}, w.bias);
  }

  void conditioner(const std::string& prefix, ConditionerWeights& w) const {
    const int64_t width = options_.n_embd, hidden = conditioner_width(options_, sizes_);
    if (options_.conv_norm_first) norm(prefix + "norm", width, w.norm);
    linear(prefix + "in_f", width, hidden, w.in_f);
    linear(prefix + "x_f", width, hidden, w.x_f);
    linear(prefix + "shortcut", width, hidden, w.shortcut);
    norm(prefix + "ln", hidden, w.ln);
    const std::vector<int64_t> shape{hidden, conditioner_outputs(options_, sizes_)};
    const bool silent = rules_of(options_.dialect).starts_silent;  // then the layer starts unconditioned
    visit_({prefix + "out_proj", shape, silent ? Init::kConstant : Init::kNormal, silent ? 0.0 : kLinearDeviation},
           w.out_proj);
  }

  const MixerOptions& options_;
  const MixerSizes sizes_;
  const std::function<void(const ParameterSpec&, at::Tensor&)>& visit_;
};

}  // namespace

void visit_parameters(const MixerOptions& options, MixerWeights& weights,
                      const std::function<void(const ParameterSpec&, at::Tensor&)>& visit) {
  Visitor(options, visit).walk(weights);
}

at::Tensor initial_value(const ParameterSpec& spec, std::optional<at::Generator> generator) {
  switch (spec.init) {
    case Init::kNormal:
      return at::empty(spec.shape).normal_(0.0, spec.value, generator);
    case Init::kConstant:
      break;
    case Init::kValues:
      return at::tensor(spec.values, at::kDouble).view(spec.shape).to(c10::get_default_dtype_as_scalartype());
  }
  return at::empty(spec.shape).fill_(spec.value);
}

at::Tensor& register_dotted(torch::nn::Module& root, const std::string& name, at::Tensor parameter) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return root.register_parameter(name, std::move(parameter));
  const std::string head = name.substr(0, dot);
  const auto children = root.named_children();
  const auto child =
      children.contains(head) ? children[head] : root.register_module(head, std::make_shared<torch::nn::Module>(head));
  return register_dotted(*child, name.substr(dot + 1), std::move(parameter));
}

std::vector<ParameterSpec> mixer_parameters(const MixerOptions& options) {
  std::vector<ParameterSpec> specs;
  MixerWeights unused;
  visit_parameters(options, unused, [&](const ParameterSpec& spec, at::Tensor&) { specs.push_back(spec); });
  return specs;
}

}  // namespace fem
