// fem::gated_scan: checks, the definition and its gradient in terms of decay_scan's.
#include "ops/gated_scan/gated_scan.h"

#include <ATen/OpMathType.h>

#include <cmath>

#include "ops/checks.h"
#include "ops/decay_scan/decay_scan.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {
namespace {

at::Tensor wide(const at::Tensor& x) { return x.to(at::toOpMathType(x.scalar_type())); }
OptionalTensor wide(const OptionalTensor& x) { return x ? OptionalTensor(wide(*x)) : x; }

at::Tensor units_of(const at::Tensor& h, const GatedScanOp::Inputs& in) {
  const at::Tensor raw = at::softplus(wide(in.gate_logit)) + scan_gate_eps(in.silu);
  const at::Tensor direction = raw / raw.norm(2, -1, /*keepdim=*/true).clamp_min(kScanNormFloor);
  const at::Tensor gate = in.silu ? at::silu(direction) : direction * std::sqrt(static_cast<double>(raw.size(-1)));
  const at::Tensor normalised = at::layer_norm(h, {h.size(-1)}, wide(in.norm_weight), wide(in.norm_bias), kScanNormEps);
  return (gate * normalised).to(in.gate_logit.scalar_type());
}

at::Tensor in_order(const at::Tensor& x, bool reverse) { return reverse ? x.flip(1) : x; }

// x where the tokens are real, else value.
at::Tensor where_real(const GatedScanOp::Inputs& in, const at::Tensor& x, double value) {
  return in.key_mask ? x.masked_fill(in.key_mask->logical_not().unsqueeze(-1), value) : x;
}
// x, or value at tokens that begin anew.
at::Tensor unless_restart(const GatedScanOp::Inputs& in, const at::Tensor& x, double value) {
  return in.restart ? x.masked_fill(in.restart->unsqueeze(-1), value) : x;
}

at::Tensor log_decay_of(const GatedScanOp::Inputs& in) {
  return unless_restart(in, where_real(in, -at::softplus(wide(in.decay_logit)), 0), -INFINITY);
}

GatedScanOp::Inputs inputs_of(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                              const ScanNorm& norm, const GatedScanOptions& o) {
  return {u, decay_logit, gate_logit, norm.weight, norm.bias, o.initial, o.key_mask, o.restart, o.reverse, o.silu};
}

}  // namespace

void GatedScanOp::check(const Inputs& in) {
  const char* op = "gated_scan";
  const at::Tensor& u = in.u;
  FEM_CHECK(u.dim() == 3, "gated_scan: expected u of shape [B, T, C], got ", shape_of(u));
  check_float(op, u);
  const c10::SymInt batch = u.sym_size(0), tokens = u.sym_size(1), channels = u.sym_size(2);
  check_like(op, "decay_logit", in.decay_logit, "u", u, u.sym_sizes());
  check_like(op, "gate_logit", in.gate_logit, "u", u, u.sym_sizes());
  check_like(op, "norm_weight", in.norm_weight, "u", u, {channels});
  if (in.norm_bias) check_like(op, "norm_bias", *in.norm_bias, "u", u, {channels});
  if (in.initial)
    check_exact(op, "initial", *in.initial, {batch, channels}, at::toOpMathType(u.scalar_type()),
                "(an h of an earlier call)");
  if (in.key_mask) check_exact(op, "key_mask", *in.key_mask, {batch, tokens}, at::kBool, "(true = a real token)");
  if (in.restart)
    check_exact(op, "restart", *in.restart, {batch, tokens}, at::kBool, "(true = forgets what came before)");
}

std::vector<Spec> GatedScanOp::outputs(const Inputs& in) {
  const auto shape = in.u.sym_sizes().vec();
  return {{shape, in.u.scalar_type()}, {shape, at::toOpMathType(in.u.scalar_type())}};
}

GatedScanOp::Outputs GatedScanOp::definition(const Inputs& in) {
  const at::Tensor added = in_order(where_real(in, wide(in.u), 0), in.reverse);
  const at::Tensor h =
      in_order(decay_scan_definition(added, in_order(log_decay_of(in), in.reverse), in.initial), in.reverse);
  return {units_of(h, in), h};
}

GatedScanOp::Inputs GatedScanOp::gradient(const BackwardOf<GatedScanOp>& b) {
  const Inputs& in = b.in;
  at::Tensor dh = b.grads.h;
  Inputs d;
  if (b.grads.units.defined()) {
    const auto units = [&](const TensorVector& x) {
      Inputs of = in;
      of.gate_logit = x[1], of.norm_weight = x[2], of.norm_bias = if_defined(x[3]);
      return TensorVector{units_of(x[0], of)};
    };
    const TensorVector from_units =
        gradient_of(units, {b.out.h, in.gate_logit, in.norm_weight, or_undefined(in.norm_bias)}, {b.grads.units});
    dh = dh.defined() ? from_units[0] + dh : from_units[0];
    d.gate_logit = from_units[1], d.norm_weight = from_units[2], d.norm_bias = from_units[3];
  }
  if (!dh.defined()) return d;
  const DecayScanOp::Inputs of_scan = decay_scan_gradient(
      in_order(dh, in.reverse), in_order(log_decay_of(in), in.reverse), in.initial, in_order(b.out.h, in.reverse));
  if (!of_scan.u.defined()) return d;
  d.u = where_real(in, in_order(of_scan.u, in.reverse), 0);
  const at::Tensor dlogit = in_order(of_scan.log_decay, in.reverse) * -wide(in.decay_logit).sigmoid();
  d.decay_logit = unless_restart(in, where_real(in, dlogit, 0), 0);
  d.initial = of_scan.initial;
  return d;
}

GatedScan gated_scan(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                     const ScanNorm& norm, const GatedScanOptions& options) {
  const auto [units, h] = call<GatedScanOp>(inputs_of(u, decay_logit, gate_logit, norm, options));
  return {units, h};
}

GatedScan gated_scan_definition(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                                const ScanNorm& norm, const GatedScanOptions& options) {
  const auto [units, h] = GatedScanOp::definition(inputs_of(u, decay_logit, gate_logit, norm, options));
  return {units, h};
}

FEM_REGISTER_OPERATOR(GatedScanOp)

}  // namespace fem
