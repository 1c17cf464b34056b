// The definition of gated_scan and of its gradient, in terms of decay_scan's.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <cmath>

#include "ops/decay_scan/decay_scan.h"
#include "ops/differentiate.h"
#include "ops/gated_scan/gated_scan.h"

namespace fem {
namespace {

at::Tensor wide(const at::Tensor& x) { return x.to(at::toOpMathType(x.scalar_type())); }
OptionalTensor wide(const OptionalTensor& x) { return x ? OptionalTensor(wide(*x)) : x; }

at::Tensor units_of(const at::Tensor& h, const at::Tensor& gate_logit, const at::Tensor& weight,
                    const OptionalTensor& bias, bool silu) {
  const at::Tensor raw = at::softplus(wide(gate_logit)) + scan_gate_eps(silu);
  const at::Tensor direction = raw / raw.norm(2, -1, /*keepdim=*/true).clamp_min(kScanNormFloor);
  const at::Tensor gate = silu ? at::silu(direction) : direction * std::sqrt(static_cast<double>(raw.size(-1)));
  const at::Tensor normalised = at::layer_norm(h, {h.size(-1)}, wide(weight), wide(bias), kScanNormEps);
  return (gate * normalised).to(gate_logit.scalar_type());
}

// Sets x to value where the tokens are marked.
at::Tensor set_where(const OptionalTensor& marked, const at::Tensor& x, double value) {
  return marked ? x.masked_fill(marked->unsqueeze(-1), value) : x;
}

at::Tensor log_decay_of(const at::Tensor& logit, const OptionalTensor& absent, const OptionalTensor& restart) {
  return set_where(restart, set_where(absent, -at::softplus(wide(logit)), 0), -INFINITY);
}

at::Tensor in_order(const at::Tensor& x, bool reverse) { return reverse ? x.flip(1) : x; }

}  // namespace

GatedScan gated_scan_definition(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                                const ScanNorm& norm, const GatedScanOptions& o) {
  const at::Tensor added = in_order(set_where(o.absent, wide(u), 0), o.reverse);
  const at::Tensor log_decay = in_order(log_decay_of(decay_logit, o.absent, o.restart), o.reverse);
  const at::Tensor h = in_order(decay_scan_definition(added, log_decay, o.initial), o.reverse);
  return {units_of(h, gate_logit, norm.weight, norm.bias, o.silu), h};
}

Tensors6 gated_scan_gradient(const at::Tensor& grad_units, const OptionalTensor& grad_h, const at::Tensor& decay_logit,
                             const at::Tensor& gate_logit, const at::Tensor& norm_weight,
                             const OptionalTensor& norm_bias, const OptionalTensor& initial,
                             const OptionalTensor& absent, const OptionalTensor& restart, bool reverse, bool silu,
                             const at::Tensor& h) {
  const auto units = [silu](const std::vector<at::Tensor>& x) {
    return std::vector<at::Tensor>{units_of(x[0], x[1], x[2], if_defined(x[3]), silu)};
  };
  const auto of_units =
      gradient_of(units, {h, gate_logit, norm_weight, norm_bias.value_or(at::Tensor())}, {grad_units});
  const at::Tensor dh = grad_h ? of_units[0] + *grad_h : of_units[0];

  const at::Tensor log_decay = in_order(log_decay_of(decay_logit, absent, restart), reverse);
  const auto [du, dlog_decay, dinitial] =
      decay_scan_gradient(decay_scan_by_definition, in_order(dh, reverse), log_decay, initial, in_order(h, reverse));
  const at::Tensor ddecay_logit = in_order(dlog_decay, reverse) * -wide(decay_logit).sigmoid();
  const auto narrow = [&](const at::Tensor& x) { return x.to(decay_logit.scalar_type()); };
  return {narrow(set_where(absent, in_order(du, reverse), 0)),
          narrow(set_where(restart, set_where(absent, ddecay_logit, 0), 0)),
          of_units[1],
          of_units[2],
          norm_bias ? of_units[3] : at::empty({0}, decay_logit.options()),
          dinitial};
}

}  // namespace fem
