// The time-decay conditioner (TDC, the letter C): h_t = exp(-s_t) h_{t-1} + u_t, gated, normalised and projected.
#include "mixer/conditioner.h"

#include <ATen/ATen.h>

#include <numeric>

#include "fem/ops/gated_scan.h"
#include "ops/modulate/again.h"
#include "priors/prior.h"
#include "priors/projection.h"

namespace fem {
namespace {

// Widths of out_proj's outputs in the authors' order: value, the prior's, both gates, the prior's.
std::vector<int64_t> output_widths(const MixerOptions& options, const MixerSizes& sizes) {
  const Prior& prior = prior_of(options.prior_type);
  std::vector<int64_t> widths{sizes.value};
  const auto append = [&](const std::vector<int64_t>& more) { widths.insert(widths.end(), more.begin(), more.end()); };
  append(prior.leading_widths(options, sizes));
  if (options.has_inner_gate()) append({sizes.value});
  if (options.use_outer_gate) append({sizes.value});
  append(prior.trailing_widths(options, sizes));
  return widths;
}

// One direction's hidden units, ready for out_proj, and its scan.
GatedScan hidden(const at::Tensor& x, const ConditionerWeights& w, const GatedScanOptions& options) {
  const at::Tensor n = w.norm.weight.defined() ? layer_norm(x, w.norm.weight, w.norm.bias) : x;
  const std::vector<at::Tensor> projected = project(n, {w.x_f, w.in_f, w.shortcut});
  const ScanNorm norm{w.ln.weight, w.ln.bias.defined() ? std::optional(w.ln.bias) : std::nullopt};
  return gated_scan(projected[0], projected[1], projected[2], norm, options);
}

}  // namespace

int64_t conditioner_width(const MixerOptions& options, const MixerSizes& sizes) {
  return options.conv_bidirectional ? sizes.conditioner / 2 : sizes.conditioner;
}

int64_t conditioner_outputs(const MixerOptions& options, const MixerSizes& sizes) {
  const std::vector<int64_t> widths = output_widths(options, sizes);
  return std::accumulate(widths.begin(), widths.end(), int64_t{0});
}

Conditioning condition(const at::Tensor& x, const MixerWeights& weights, const MixerOptions& options,
                       const MixerSizes& sizes, const Positions& positions, const Batch& batch, MixerState* state) {
  const std::vector<int64_t> widths = output_widths(options, sizes);
  std::vector<Modulation> modulations(widths.size());
  if (options.use_conv) {
    GatedScanOptions scan;
    scan.silu = rules_of(options.dialect).silu_units;
    if (batch.mask) scan.absent = batch.mask->logical_not();
    if (positions.first.defined()) scan.restart = positions.first.unsqueeze(0);
    if (state && state->conditioner.defined()) scan.initial = state->conditioner;
    const auto [onward, h] = hidden(x, weights.forward, scan);
    if (state && h.size(1) > 0) state->conditioner = h.select(1, -1).clone();  // a view would keep all of h

    at::Tensor units = onward, out_proj = weights.forward.out_proj;
    if (options.conv_bidirectional) {  // the two products are one over the units of both directions
      scan.reverse = true;
      if (positions.last.defined()) scan.restart = positions.last.unsqueeze(0);
      units = at::cat({units, hidden(x, weights.backward, scan).units}, -1);
      out_proj = at::cat({out_proj, weights.backward.out_proj});
    }
    const std::vector<at::Tensor> slices = out_proj.split_with_sizes(widths, -1);
    for (size_t i = 0; i < widths.size(); ++i) modulations[i] = {units, slices[i]};
  }

  Conditioning c;
  auto next = modulations.begin();
  const size_t leading = prior_of(options.prior_type).leading_widths(options, sizes).size();
  c.value = *next++;
  c.prior.assign(next, next + leading);
  next += leading;
  if (options.has_inner_gate()) c.temperature_gate = *next++;
  if (options.use_outer_gate) c.outer_gate = *next++;
  c.prior.insert(c.prior.end(), next, modulations.end());
  for (Modulation& modulation : c.prior) modulation.added = rules_of(options.dialect).adds_to_prior;
  return c;
}

}  // namespace fem
