// The Free Energy Mixer as a function.
#include <ATen/ATen.h>

#include "fem/mixer.h"
#include "fem/ops/gated_read.h"
#include "mixer/check.h"
#include "mixer/conditioner.h"
#include "mixer/positions.h"
#include "mixer/streaming.h"
#include "ops/modulate/again.h"
#include "priors/prior.h"
#include "priors/projection.h"

namespace fem {
namespace {

// Elements: 4 MB in float32. Below that making again costs a tenth of a layer's time (docs/performance_log.md).
constexpr int64_t kWorthMakingAgain = 1 << 20;

// The inverse temperature of each channel, [H, V]; none if the layer only reads means.
std::optional<at::Tensor> beta_of(const MixerWeights& w, const MixerOptions& options) {
  if (!options.has_free_energy()) return std::nullopt;
  const at::Tensor beta =
      options.use_temperature ? at::softplus(w.beta_param) + options.eps : at::ones_like(w.beta_param.detach());
  return beta.unflatten(0, {options.n_head, -1});
}

// x through every linear layer at once.
struct Projections {
  at::Tensor value, temperature_gate, outer_gate;
  std::vector<at::Tensor> prior;
};

Projections project_tokens(const at::Tensor& x, const MixerWeights& w, const MixerOptions& options, size_t of_prior) {
  std::vector<LinearWeights> layers{w.value};
  for (size_t i = 0; i < of_prior; ++i)
    layers.push_back(options.bias ? LinearWeights{w.prior[2 * i], w.prior[2 * i + 1]} : LinearWeights{w.prior[i], {}});
  if (options.has_inner_gate()) layers.push_back(w.temperature_gate);
  if (options.use_outer_gate) layers.push_back(w.outer_gate);

  const std::vector<at::Tensor> all = project(x, layers);
  Projections p;
  auto next = all.begin();
  p.value = *next++;
  p.prior.assign(next, next + of_prior);
  next += of_prior;
  if (options.has_inner_gate()) p.temperature_gate = *next++;
  if (options.use_outer_gate) p.outer_gate = *next++;
  return p;
}

// Both gates on what was read, [B, T, H, V].
at::Tensor gate(Read read, const Projections& p, const Conditioning& c, const MixerOptions& options) {
  const bool first = rules_of(options.dialect).gates_then_change;  // the conditioner changes them afterwards
  const auto logit = [&](const at::Tensor& projected, const Modulation& modulation) {
    return by_head(projected, options.n_head, first ? Modulation() : modulation);
  };
  std::optional<at::Tensor> temperature_logit, gate_logit;
  if (options.has_inner_gate()) {
    temperature_logit = logit(p.temperature_gate, c.temperature_gate);
    // lambda (1 + c) (F - mean): the gap takes the change that lambda would.
    if (first && c.temperature_gate.defined())
      read.free_energy = read.mean + modulate(read.free_energy - read.mean, c.temperature_gate);
  } else if (options.has_free_energy()) {
    read = {read.free_energy, {}};
  }
  if (options.use_outer_gate) gate_logit = logit(p.outer_gate, c.outer_gate);
  const at::Tensor gated = gated_read(read, temperature_logit, gate_logit, options.eps);
  return first && c.outer_gate.defined() ? modulate(gated, c.outer_gate) : gated;
}

at::Tensor mix_tokens(const at::Tensor& x, const MixerWeights& w, const MixerOptions& options, const MixerSizes& sizes,
                      const Batch& batch, MixerState* state, bool training) {
  const MakeAgainGuard recompute(kWorthMakingAgain);
  const int64_t heads = options.n_head;
  const Prior& prior = prior_of(options.prior_type);
  const Positions positions = positions_of(x, batch, state);
  const std::optional<at::Tensor> beta = beta_of(w, options);

  const Conditioning c = condition(x, w, options, sizes, positions, batch, state);
  const Projections p = project_tokens(x, w, options, prior.linear_layers(options));
  const auto own = w.prior.begin() + prior.linear_layers(options) * (options.bias ? 2 : 1);

  at::Tensor value;
  if (prior.squashes_value(options)) {
    value = by_head(p.value, heads, c.value).sigmoid();
    if (beta) value = clip_value(value, *beta, options.value_logexp_cap);
  } else {
    AfterModulation clip;
    if (beta) clip.limit = options.value_logexp_cap / *beta;
    value = by_head(p.value, heads, c.value, clip);
  }

  const Read read =
      prior.read({p.prior, value, beta, positions.index, {own, w.prior.end()}, c.prior, options, sizes, batch, state});

  const at::Tensor gated = gate(read, p, c, options).flatten(2);
  return project(at::dropout(gated, options.dropout, training), {w.output})[0];
}

Memory memory_of(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType dtype) {
  Memory memory = prior_of(options.prior_type).memory(options, sizes, dtype);
  memory.layer = spelled(options.prior_type) + ", " + spelled(options.dialect) + ", " + rope_words(options);
  if (options.window) memory.layer += ", window " + std::to_string(*options.window);
  if (options.use_conv)
    memory.conditioner = {"conditioner", {conditioner_width(options, sizes)}, at::toOpMathType(dtype)};
  return memory;
}

}  // namespace

at::Tensor mix(const at::Tensor& x, const MixerWeights& weights, const MixerOptions& options, const Batch& batch,
               MixerState* state, bool training) {
  const MixerSizes sizes = sizes_of(options);
  check_call(x, weights, options, batch, state);
  if (!state) return mix_tokens(x, weights, options, sizes, batch, nullptr, training);

  return stream("mix", x, batch, memory_of(options, sizes, x.scalar_type()), *state,
                [&](MixerState& next) { return mix_tokens(x, weights, options, sizes, batch, &next, training); });
}

}  // namespace fem
