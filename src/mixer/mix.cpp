// The Free Energy Mixer as a function.
#include <ATen/ATen.h>

#include "fem/mixer.h"
#include "fem/ops/gated_read.h"
#include "mixer/check.h"
#include "mixer/conditioner.h"
#include "mixer/positions.h"
#include "priors/prior.h"
#include "priors/projection.h"

namespace fem {
namespace {

// The inverse temperature of each channel, [H, V]; none if the layer only reads means.
std::optional<at::Tensor> beta_of(const MixerWeights& w, const MixerOptions& options) {
  if (!options.has_free_energy()) return std::nullopt;
  const at::Tensor beta =
      options.use_temperature ? at::softplus(w.beta_param) + options.eps : at::ones_like(w.beta_param.detach());
  return beta.unflatten(0, {options.n_head, -1});
}

at::Tensor mix_tokens(const at::Tensor& x, const MixerWeights& w, const MixerOptions& options, const MixerSizes& sizes,
                      const Batch& batch, MixerState* state, bool training) {
  const int64_t heads = options.n_head;
  const Prior& prior = prior_of(options.prior_type);
  const Positions positions = positions_of(x, batch, state);
  const std::optional<at::Tensor> beta = beta_of(w, options);

  const Conditioning c = condition(x, w, options, sizes, positions, batch, state);

  at::Tensor value;
  if (prior.squashes_value(options)) {
    value = project(x, w.value, heads, c.value).sigmoid();
    if (beta) value = clip_value(value, *beta, options.value_logexp_cap);
  } else {
    AfterModulation clip;
    if (beta) clip.limit = options.value_logexp_cap / *beta;
    value = project(x, w.value, heads, c.value, clip);
  }

  const Read read = prior.read({x, value, beta, positions.index, w.prior, c.prior, options, sizes, batch, state});

  std::optional<at::Tensor> temperature_logit, gate_logit;
  if (beta) temperature_logit = project(x, w.temperature_gate, heads, c.temperature_gate);
  if (options.use_outer_gate) gate_logit = project(x, w.outer_gate, heads, c.outer_gate);
  const at::Tensor gated = gated_read(read, temperature_logit, gate_logit, options.eps).flatten(2);

  return linear(at::dropout(gated, options.dropout, training), w.output);
}

}  // namespace

at::Tensor mix(const at::Tensor& x, const MixerWeights& weights, const MixerOptions& options, const Batch& batch,
               MixerState* state, bool training) {
  const MixerSizes sizes = sizes_of(options);
  check_call(x, weights, options, batch, state);
  if (!state) return mix_tokens(x, weights, options, sizes, batch, nullptr, training);

  const at::NoGradGuard no_gradients;
  MixerState next = *state;  // cheap, and a call that throws leaves the state as it was
  const at::Tensor y = mix_tokens(x, weights, options, sizes, batch, &next, training);
  advance(next, x, batch);
  *state = std::move(next);
  return y;
}

}  // namespace fem
