// The time-decay conditioner (TDC, the letter C): h_t = exp(-s_t) h_{t-1} + u_t, gated, normalised and projected.
#include "mixer/conditioner.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>

#include "fem/ops/decay_scan.h"
#include "priors/prior.h"
#include "priors/projection.h"
#include "util/width.h"

namespace fem {
namespace {

// Widths of out_proj's outputs in the authors' order: value, the prior's, both gates, the prior's.
std::vector<int64_t> output_widths(const MixerOptions& options, const MixerSizes& sizes) {
  const Prior& prior = prior_of(options.prior_type);
  std::vector<int64_t> widths{sizes.value};
  const auto append = [&](const std::vector<int64_t>& more) { widths.insert(widths.end(), more.begin(), more.end()); };
  append(prior.leading_widths(sizes));
  if (options.has_free_energy()) append({sizes.value});
  if (options.use_outer_gate) append({sizes.value});
  append(prior.trailing_widths(sizes));
  return widths;
}

at::Tensor layer_norm(const at::Tensor& x, const LinearWeights& weights) {
  return at::layer_norm(x, {weights.weight.size(0)}, weights.weight, weights.bias, 1e-5);
}

at::Tensor l2_gate(const at::Tensor& logit) {
  const at::Tensor raw = at::softplus(logit) + 1e-8;
  return raw * (std::sqrt(static_cast<double>(width_of(raw))) / raw.norm(2, -1, /*keepdim=*/true));
}

struct Scan {
  at::Tensor u, log_decay;  // [B, T, H_c]
};

Scan scan_input(const at::Tensor& u, const at::Tensor& decay, const Batch& batch, const at::Tensor& restart) {
  Scan scan{u, -at::softplus(decay)};
  if (batch.mask) {  // a masked token adds nothing and lets h pass
    const at::Tensor absent = batch.mask->logical_not().unsqueeze(-1);
    scan = {scan.u.masked_fill(absent, 0), scan.log_decay.masked_fill(absent, 0)};
  }
  if (restart.defined()) scan.log_decay = scan.log_decay.masked_fill(restart.unsqueeze(-1), -INFINITY);
  return scan;
}

// One direction's hidden units, ready for out_proj.
template <typename Run>
at::Tensor hidden(const at::Tensor& x, const ConditionerWeights& w, const Batch& batch, const at::Tensor& restart,
                  Run run) {
  const at::Tensor n = w.norm.weight.defined() ? layer_norm(x, w.norm) : x;
  const std::vector<at::Tensor> projected = project(n, {w.x_f, w.in_f, w.shortcut});
  const at::Tensor h = run(scan_input(projected[0], projected[1], batch, restart));
  return l2_gate(projected[2]) * layer_norm(h, w.ln);
}

}  // namespace

int64_t conditioner_width(const MixerOptions& options) {
  return options.conv_bidirectional ? options.conv_hidden / 2 : options.conv_hidden;
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
    const auto onward = [&](const Scan& scan) {
      if (!state) return decay_scan(scan.u, scan.log_decay);
      const std::optional<at::Tensor> initial =
          state->conditioner.defined() ? std::optional(state->conditioner) : std::nullopt;
      const at::Tensor h = decay_scan(scan.u, scan.log_decay, initial);
      if (h.size(1) > 0) state->conditioner = h.select(1, -1).clone();  // a view would keep all of h
      return h;
    };
    const auto backward = [](const Scan& scan) { return decay_scan(scan.u.flip(1), scan.log_decay.flip(1)).flip(1); };

    at::Tensor units = hidden(x, weights.forward, batch, positions.first, onward);
    at::Tensor out_proj = weights.forward.out_proj;
    if (options.conv_bidirectional) {  // the two products are one over the units of both directions
      units = at::cat({units, hidden(x, weights.backward, batch, positions.last, backward)}, -1);
      out_proj = at::cat({out_proj, weights.backward.out_proj});
    }
    const std::vector<at::Tensor> slices = out_proj.split_with_sizes(widths, -1);
    for (size_t i = 0; i < widths.size(); ++i) modulations[i] = {units, slices[i]};
  }

  Conditioning c;
  auto next = modulations.begin();
  const size_t leading = prior_of(options.prior_type).leading_widths(sizes).size();
  c.value = *next++;
  c.prior.assign(next, next + leading);
  next += leading;
  if (options.has_free_energy()) c.temperature_gate = *next++;
  if (options.use_outer_gate) c.outer_gate = *next++;
  c.prior.insert(c.prior.end(), next, modulations.end());
  return c;
}

}  // namespace fem
