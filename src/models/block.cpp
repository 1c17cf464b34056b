#include "models/block.h"

#include <ATen/ATen.h>

#include "fem/ops/project.h"
#include "fem/ops/rms_norm.h"
#include "fem/ops/swiglu.h"
#include "nn/linear.h"

namespace fem {
namespace {

void append(std::vector<ParameterSpec>& specs, const std::string& prefix, std::vector<ParameterSpec> more) {
  for (ParameterSpec& spec : more) {
    spec.name = prefix + spec.name;
    specs.push_back(std::move(spec));
  }
}

}  // namespace

ParameterSpec matrix_spec(std::string name, int64_t out, int64_t in) {
  return {std::move(name), {out, in}, ParameterSpec::Init::kNormal, kLinearDeviation, {}, /*decays=*/true};
}

ParameterSpec norm_spec(std::string name, int64_t width) {
  return {std::move(name), {width}, ParameterSpec::Init::kConstant, 1.0};
}

std::vector<ParameterSpec> block_parameters(const BackboneOptions& o, int64_t layer) {
  std::vector<ParameterSpec> specs{norm_spec("mixer_norm.weight", o.n_embd)};
  append(specs, "mixer.", token_mixer_of(o.block_mixer).parameters(o, layer));
  specs.push_back(norm_spec("mlp_norm.weight", o.n_embd));
  if (o.mlp == MlpType::kSwiglu) specs.push_back(matrix_spec("mlp.gate.weight", o.mlp_width, o.n_embd));
  specs.push_back(matrix_spec("mlp.up.weight", o.mlp_width, o.n_embd));
  specs.push_back(matrix_spec("mlp.down.weight", o.n_embd, o.mlp_width));
  append(specs, "residual.", residual_of(o).parameters());
  return specs;
}

Block::Block(const BackboneOptions& options, int64_t layer, const std::vector<at::Tensor>& weights)
    : norm_eps_(options.norm_eps), dropout_(options.dropout), residual_(residual_of(options)) {
  const bool gated = options.mlp == MlpType::kSwiglu;
  const auto mixer = weights.begin() + 1;
  auto next = weights.end() - static_cast<int64_t>(residual_.parameters().size()) - (gated ? 4 : 3);
  mixer_norm_ = weights.front();
  mix_ = token_mixer_of(options.block_mixer).bind(options, layer, {mixer, next});
  mlp_norm_ = *next++;
  if (gated) gate_ = *next++;
  up_ = *next++;
  down_ = *next++;
  coefficients_.assign(next, weights.end());
}

MixerInput Block::asked(const Stream& stream) const {
  const auto normed = [&](const at::Tensor& x) { return x.defined() ? rms_norm(x, mixer_norm_, norm_eps_) : x; };
  const MixerInput at = residual_.input(stream, coefficients_);
  return {normed(at.x), normed(at.query)};
}

Stream Block::mix(const Stream& stream, const Batch& batch, MixerState* state, bool training) const {
  const at::Tensor update = mix_(asked(stream), batch, state, training);
  return residual_.step(stream, at::dropout(update, dropout_, training), coefficients_);
}

at::Tensor Block::hidden(const at::Tensor& x) const {
  if (!gate_.defined()) return at::gelu(project(x, {up_})[0]);
  const std::vector<at::Tensor> both = project(x, {gate_, up_});
  return swiglu(both[0], both[1]);
}

Stream Block::mlp(const Stream& stream, bool training) const {
  const at::Tensor added = project(hidden(rms_norm(stream.x, mlp_norm_, norm_eps_)), {down_})[0];
  return {stream.x + at::dropout(added, dropout_, training), stream.velocity};
}

}  // namespace fem
