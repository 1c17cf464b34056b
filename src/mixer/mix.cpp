// The Free Energy Mixer as a function: condition, value, prior read, gates, output (mix_tokens); and what it read.
#include <ATen/ATen.h>

#include "fem/inspect.h"
#include "fem/mixer.h"
#include "fem/ops/gated_read.h"
#include "mixer/check.h"
#include "mixer/conditioner.h"
#include "mixer/look.h"
#include "mixer/parameters.h"
#include "mixer/parts.h"
#include "mixer/queries_and_keys.h"
#include "mixer/streaming.h"

namespace fem {
namespace {

// The inverse temperature of each channel, [H, V]; none if the layer only reads means.
std::optional<at::Tensor> beta_of(const MixerWeights& w, const MixerOptions& options) {
  if (!options.has_free_energy()) return std::nullopt;
  const at::Tensor beta =
      options.use_temperature ? at::softplus(w.beta_param) + options.eps : at::ones_like(w.beta_param.detach());
  return beta.unflatten(0, {options.n_head, -1});
}

// Every part with its weights, which are checked.
std::vector<AppliedPart> bound_parts(const MixerWeights& w, const MixerOptions& options, const MixerSizes& sizes) {
  std::vector<AppliedPart> parts;
  visit_parts(options, sizes, w,
              [&](Part part, const LinearWeights& weights) { parts.push_back({std::move(part), weights}); });
  check_weights(w, parts, options, sizes);
  return parts;
}

// v~ [B, T, H, V]: squashed if the prior says so, and clipped to what exp(beta v) allows.
at::Tensor value_of(const AppliedPart& part, const std::optional<at::Tensor>& beta, const MixerOptions& options) {
  if (prior_of(options.prior_type).squashes_value(options)) {
    const at::Tensor value = part.by_head(options.n_head).sigmoid();
    return beta ? clip_value(value, *beta, options.value_logexp_cap) : value;
  }
  AfterModulation clip;
  if (beta) clip.limit = options.value_logexp_cap / *beta;
  return part.by_head(options.n_head, clip);
}

// Both gates on what was read, [B, T, H, V].
at::Tensor gate(Read read, const AppliedParts& parts, const MixerOptions& options) {
  const bool first = rules_of(options.dialect).gates_then_change;  // the conditioner changes them afterwards
  const auto logit = [&](const AppliedPart& part) {
    return first ? by_head(part.projected, options.n_head) : part.by_head(options.n_head);
  };
  std::optional<at::Tensor> temperature_logit;
  if (options.has_inner_gate()) {
    const AppliedPart& part = parts[kTemperatureGate];
    temperature_logit = logit(part);
    // lambda (1 + c) (F - mean): the gap takes the change that lambda would.
    if (first && part.modulation.defined())
      read.free_energy = read.mean + modulate(read.free_energy - read.mean, part.modulation);
  } else if (options.has_free_energy()) {
    read = {read.free_energy, {}};
  }
  if (!options.use_outer_gate) return gated_read(read, temperature_logit, std::nullopt, options.eps);
  const AppliedPart& part = parts[kOuterGate];
  const at::Tensor gated = gated_read(read, temperature_logit, logit(part), options.eps);
  return first && part.modulation.defined() ? modulate(gated, part.modulation) : gated;
}

at::Tensor mix_tokens(const MixerInput& in, const MixerWeights& w, const MixerOptions& options, const MixerSizes& sizes,
                      const Batch& batch, MixerState* state, bool training) {
  const Prior& prior = prior_of(options.prior_type);
  const Positions positions = positions_of(in.x, batch, state);
  std::vector<AppliedPart> bound = bound_parts(w, options, sizes);
  const std::optional<at::Tensor> beta = beta_of(w, options);

  const Modulation c = condition(in.x, w, options, positions, batch, state);
  const AppliedParts parts(in, std::move(bound), c);
  const at::Tensor value = value_of(parts[kValue], beta, options);
  const Read read = prior.read({parts, value, beta, positions.index, options, sizes, batch, state});
  const at::Tensor gated = gate(read, parts, options).flatten(2);
  return project(at::dropout(gated, options.dropout, training), {w.output})[0];
}

Memory memory_of(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType dtype) {
  Memory memory = prior_of(options.prior_type).memory(options, sizes, dtype);
  memory.layer = spelled(options.prior_type) + ", " + spelled(options.dialect) + ", " + rope_words(options);
  if (options.window) memory.layer += ", window " + std::to_string(*options.window);
  if (options.use_alibi) memory.layer += ", alibi";
  if (options.use_conv)
    memory.conditioner = {"conditioner", {conditioner_width(options, sizes)}, at::toOpMathType(dtype)};
  return memory;
}

}  // namespace

QueryAndKey softmax_queries_and_keys(const MixerInput& in, const MixerWeights& weights, const MixerOptions& options) {
  FEM_CHECK(options.prior_type == PriorType::kSoftmax && !options.window && !options.use_alibi && options.causal,
            "queries_and_keys: expected a causal mixer with prior softmax, without window and ALiBi, got prior ",
            spelled(options.prior_type), " with other options");
  const MixerSizes sizes = sizes_of(options);
  const Batch batch;
  check_call(in, weights, options, batch, nullptr);
  const Positions positions = positions_of(in.x, batch, nullptr);
  std::vector<AppliedPart> bound = bound_parts(weights, options, sizes);
  const AppliedParts parts(in, std::move(bound), condition(in.x, weights, options, positions, batch, nullptr));
  return query_and_key({parts, {}, {}, positions.index, options, sizes, batch, nullptr});
}

Inspection inspect(const MixerInput& given, const MixerWeights& weights, const MixerOptions& options,
                   const std::vector<int64_t>& tokens, const Batch& batch) {
  const at::NoGradGuard no_gradients;
  const MixerSizes sizes = sizes_of(options);
  check_call(given, weights, options, batch, nullptr);
  const at::Tensor chosen = chosen_tokens("inspect", tokens, given.x);
  const auto exact = [](const at::Tensor& x) { return x.defined() ? x.to(at::kDouble) : x; };
  const MixerInput in(exact(given.x), exact(given.query));
  MixerWeights w = weights;
  visit_parameters(options, w, [&](const ParameterSpec&, at::Tensor& slot) { slot = exact(slot); });

  const Positions positions = positions_of(in.x, batch, nullptr);
  const std::optional<at::Tensor> beta = beta_of(w, options);
  const AppliedParts parts(in, bound_parts(w, options, sizes), condition(in.x, w, options, positions, batch, nullptr));
  const at::Tensor value = value_of(parts[kValue], beta, options);
  const PriorCall call{parts, value, beta, positions.index, options, sizes, batch, nullptr};

  // The gates of a read of 0 and 1, and of 1 and 1, are the gates themselves.
  MixerOptions inner = options;
  inner.use_outer_gate = false;
  const at::Tensor one = at::ones_like(value), zero = at::zeros_like(value);
  const at::Tensor lambda = gate({zero, one}, parts, inner), outer = gate({one, one}, parts, options);
  const at::Tensor hidden = seen_by(chosen, in.x.size(1), options, batch).logical_not();
  const at::Tensor weights_of_chosen =
      prior_of(options.prior_type).log_weights(call, chosen).masked_fill(hidden.unsqueeze(2).unsqueeze(2), -INFINITY);
  Inspection looked =
      look({weights_of_chosen, value, beta, lambda.index_select(1, chosen), outer.index_select(1, chosen)});
  looked.capped = at::zeros_like(looked.beta);
  if (beta) {
    const at::Tensor at_cap = (value.abs() * *beta).ge(options.value_logexp_cap * (1 - 1e-9)).to(at::kDouble);
    looked.capped = batch.mask ? at_cap.flatten(0, 1).index({batch.mask->flatten()}).mean(0) : at_cap.mean({0, 1});
  }
  if (options.prior_type == PriorType::kSoftmax && options.causal && !options.window && !options.use_alibi &&
      !batch.mask && !batch.cu_seqlens) {
    const QueryAndKey asked = query_and_key(call);
    add_energy(looked, asked.query, asked.key, chosen);
  }
  return looked;
}

at::Tensor mix(const MixerInput& in, const MixerWeights& weights, const MixerOptions& options, const Batch& batch,
               MixerState* state, bool training) {
  const MixerSizes sizes = sizes_of(options);
  check_call(in, weights, options, batch, state);
  if (!state) return mix_tokens(in, weights, options, sizes, batch, nullptr, training);

  return stream("mix", in.x, batch, memory_of(options, sizes, in.x.scalar_type()), *state,
                [&](MixerState& next) { return mix_tokens(in, weights, options, sizes, batch, &next, training); });
}

}  // namespace fem
