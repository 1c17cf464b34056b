#include "mixer/parameters.h"

#include <ATen/ATen.h>

#include "mixer/conditioner.h"
#include "mixer/parts.h"
#include "nn/parameters.h"

namespace fem {
namespace {

using Init = ParameterSpec::Init;

using Visit = std::function<void(const ParameterSpec&, at::Tensor& slot)>;

// A weight, and a bias if there is one.
void visit_layer(const std::vector<ParameterSpec>& specs, LinearWeights& slots, const Visit& visit) {
  visit(specs.front(), slots.weight);
  if (specs.size() > 1) visit(specs.back(), slots.bias);
}

// One direction's, with so many outputs.
void visit_conditioner(const std::string& prefix, const MixerOptions& options, int64_t hidden, int64_t outputs,
                       ConditionerWeights& w, const Visit& visit) {
  visit_conditioner_layers(options, hidden, w,
                           [&](const char* name, const std::vector<int64_t>& shape, LinearWeights& slots) {
                             std::vector<ParameterSpec> specs;
                             if (shape.size() == 1) {
                               specs.push_back({prefix + name + ".weight", shape, Init::kConstant, 1.0, {}});
                               if (options.bias)
                                 specs.push_back({prefix + name + ".bias", shape, Init::kConstant, 0.0, {}});
                             } else {
                               declare_linear(specs, prefix + name, shape[1], shape[0], options.bias);
                             }
                             visit_layer(specs, slots, visit);
                           });
  const bool silent = rules_of(options.dialect).starts_silent;  // then the layer starts unconditioned
  const auto [init, value] = silent ? std::pair(Init::kConstant, 0.0) : std::pair(Init::kNormal, kLinearDeviation);
  visit({prefix + "out_proj", {hidden, outputs}, init, value, {}, /*decays=*/true}, w.out_proj);
}

}  // namespace

void visit_parameters(const MixerOptions& options, MixerWeights& weights, const Visit& visit) {
  const MixerSizes sizes = sizes_of(options);
  int64_t conditioned = 0;
  visit_parts(options, sizes, weights, [&](const Part& part, LinearWeights& slots) {
    visit_layer(parameters_of(part), slots, visit);
    if (part.conditioned != Conditioned::kNot) conditioned += part.shape[0];
  });
  visit({"_beta_param", {sizes.value}, Init::kConstant, options.beta_max_init, {}}, weights.beta_param);
  const int64_t hidden = conditioner_width(options, sizes);
  if (options.use_conv) visit_conditioner("tdc.fwd.", options, hidden, conditioned, weights.forward, visit);
  if (options.use_conv && options.conv_bidirectional)
    visit_conditioner("tdc.bwd.", options, hidden, conditioned, weights.backward, visit);
}

std::vector<ParameterSpec> mixer_parameters(const MixerOptions& options) {
  std::vector<ParameterSpec> specs;
  MixerWeights unused;
  visit_parameters(options, unused, [&](const ParameterSpec& spec, at::Tensor&) { specs.push_back(spec); });
  return specs;
}

}  // namespace fem
