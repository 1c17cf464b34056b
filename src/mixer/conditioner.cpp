// The time-decay conditioner (TDC, the letter C): h_t = exp(-s_t) h_{t-1} + u_t, gated, normalised and projected.
#include "mixer/conditioner.h"

#include <ATen/ATen.h>

#include "fem/ops/gated_scan.h"
#include "nn/linear.h"
#include "ops/layer_norm/layer_norm.h"
#include "priors/dialect.h"

namespace fem {
namespace {

// One direction's hidden units, ready for out_proj, and its scan.
GatedScan hidden(const at::Tensor& x, const ConditionerWeights& w, const GatedScanOptions& options) {
  const at::Tensor n = w.norm.weight.defined() ? layer_norm(x, w.norm.weight, w.norm.bias, worth_recomputing(x)) : x;
  const std::vector<at::Tensor> projected = project(n, {w.x_f, w.in_f, w.shortcut});
  const ScanNorm norm{w.ln.weight, w.ln.bias.defined() ? std::optional(w.ln.bias) : std::nullopt};
  return gated_scan(projected[0], projected[1], projected[2], norm, options);
}

}  // namespace

int64_t conditioner_width(const MixerOptions& options, const MixerSizes& sizes) {
  return options.conv_bidirectional ? sizes.conditioner / 2 : sizes.conditioner;
}

Modulation condition(const at::Tensor& x, const MixerWeights& weights, const MixerOptions& options,
                     const Positions& positions, const Batch& batch, MixerState* state) {
  if (!options.use_conv) return {};
  GatedScanOptions scan;
  scan.silu = rules_of(options.dialect).silu_units;
  scan.key_mask = batch.mask;
  if (positions.first.defined()) scan.restart = positions.first.unsqueeze(0);
  if (state && state->conditioner.defined()) scan.initial = state->conditioner;
  const auto [units, h] = hidden(x, weights.forward, scan);
  if (state && h.size(1) > 0) state->conditioner = h.select(1, -1).clone();  // a view would keep all of h
  if (!options.conv_bidirectional) return {units, weights.forward.out_proj};

  // The two products are one over the units of both directions.
  scan.reverse = true;
  if (positions.last.defined()) scan.restart = positions.last.unsqueeze(0);
  return {at::cat({units, hidden(x, weights.backward, scan).units}, -1),
          at::cat({weights.forward.out_proj, weights.backward.out_proj})};
}

}  // namespace fem
