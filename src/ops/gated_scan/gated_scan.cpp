// fem::gated_scan: schema, checks and the choice between kernels and definition.
#include "ops/gated_scan/gated_scan.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include "util/check.h"

namespace fem {
namespace {

void check_like(const char* name, const at::Tensor& tensor, const at::Tensor& u, const std::vector<c10::SymInt>& shape,
                at::ScalarType dtype) {
  FEM_CHECK(tensor.sym_sizes() == c10::SymIntArrayRef(shape) && tensor.scalar_type() == dtype &&
                tensor.device() == u.device(),
            "gated_scan: expected ", name, " as ", dtype, " ", c10::SymIntArrayRef(shape), " on ", u.device(),
            " to match u ", shape_of(u), ", got ", tensor.scalar_type(), " ", shape_of(tensor), " on ",
            tensor.device());
}

void check(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
           const at::Tensor& norm_weight, const OptionalTensor& norm_bias, const OptionalTensor& initial,
           const OptionalTensor& absent, const OptionalTensor& restart) {
  FEM_CHECK(u.dim() == 3, "gated_scan: expected u of shape [B, T, C], got ", shape_of(u));
  const auto dtype = u.scalar_type();
  FEM_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble,
            "gated_scan: expected float32, bfloat16 or float64, got ", dtype);
  const c10::SymInt batch = u.sym_size(0), tokens = u.sym_size(1), channels = u.sym_size(2);
  check_like("decay_logit", decay_logit, u, u.sym_sizes().vec(), dtype);
  check_like("gate_logit", gate_logit, u, u.sym_sizes().vec(), dtype);
  check_like("norm_weight", norm_weight, u, {channels}, dtype);
  if (norm_bias) check_like("norm_bias", *norm_bias, u, {channels}, dtype);
  if (initial) check_like("initial", *initial, u, {batch, channels}, at::toOpMathType(dtype));
  if (absent) check_like("absent", *absent, u, {batch, tokens}, at::kBool);
  if (restart) check_like("restart", *restart, u, {batch, tokens}, at::kBool);
}

Tensors2 scan_on_cpu(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                     const at::Tensor& norm_weight, const OptionalTensor& norm_bias, const OptionalTensor& initial,
                     const OptionalTensor& absent, const OptionalTensor& restart, bool reverse, bool silu) {
  check(u, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart);
  const auto scan = u.scalar_type() == at::kDouble ? gated_scan_by_definition : gated_scan_cpu;
  return scan(u, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart, reverse, silu);
}

Tensors2 scan_shapes(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                     const at::Tensor& norm_weight, const OptionalTensor& norm_bias, const OptionalTensor& initial,
                     const OptionalTensor& absent, const OptionalTensor& restart, bool, bool) {
  check(u, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart);
  return {at::empty_symint(u.sym_sizes(), u.options()),
          at::empty_symint(u.sym_sizes(), u.options().dtype(at::toOpMathType(u.scalar_type())))};
}

Tensors6 gradient_on_cpu(const at::Tensor& grad_units, const OptionalTensor& grad_h, const at::Tensor& decay_logit,
                         const at::Tensor& gate_logit, const at::Tensor& norm_weight, const OptionalTensor& norm_bias,
                         const OptionalTensor& initial, const OptionalTensor& absent, const OptionalTensor& restart,
                         bool reverse, bool silu, const at::Tensor& h) {
  const auto gradient = h.scalar_type() == at::kDouble ? gated_scan_gradient : gated_scan_backward_cpu;
  return gradient(grad_units, grad_h, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart,
                  reverse, silu, h);
}

Tensors6 gradient_shapes(const at::Tensor&, const OptionalTensor&, const at::Tensor& logit, const at::Tensor&,
                         const at::Tensor& norm_weight, const OptionalTensor& norm_bias, const OptionalTensor& initial,
                         const OptionalTensor&, const OptionalTensor&, bool, bool, const at::Tensor&) {
  const auto like = [&](const OptionalTensor& x) {
    return x ? at::empty_symint(x->sym_sizes(), x->options()) : at::empty({0}, logit.options());
  };
  return {like(logit), like(logit), like(logit), like(norm_weight), like(norm_bias), like(initial)};
}

}  // namespace

Tensors2 gated_scan_by_definition(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                                  const at::Tensor& norm_weight, const OptionalTensor& norm_bias,
                                  const OptionalTensor& initial, const OptionalTensor& absent,
                                  const OptionalTensor& restart, bool reverse, bool silu) {
  check(u, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart);
  const GatedScan scan = gated_scan_definition(u, decay_logit, gate_logit, {norm_weight, norm_bias},
                                               {initial, absent, restart, reverse, silu});
  return {scan.units, scan.h};
}

Tensors2 call_gated_scan(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                         const at::Tensor& norm_weight, const OptionalTensor& norm_bias, const OptionalTensor& initial,
                         const OptionalTensor& absent, const OptionalTensor& restart, bool reverse, bool silu) {
  static const auto op = find_operator<GatedScanOp>("fem::gated_scan");
  return op.call(u, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart, reverse, silu);
}

Tensors6 call_gated_scan_backward(const at::Tensor& grad_units, const OptionalTensor& grad_h,
                                  const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                                  const at::Tensor& norm_weight, const OptionalTensor& norm_bias,
                                  const OptionalTensor& initial, const OptionalTensor& absent,
                                  const OptionalTensor& restart, bool reverse, bool silu, const at::Tensor& h) {
  static const auto op = find_operator<GatedScanBackwardOp>("fem::gated_scan_backward");
  return op.call(grad_units, grad_h, decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart, reverse,
                 silu, h);
}

GatedScan gated_scan(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                     const ScanNorm& norm, const GatedScanOptions& o) {
  const auto [units, h] = call_gated_scan(u, decay_logit, gate_logit, norm.weight, norm.bias, o.initial, o.absent,
                                          o.restart, o.reverse, o.silu);
  return {units, h};
}

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "gated_scan(Tensor u, Tensor decay_logit, Tensor gate_logit, Tensor norm_weight, Tensor? norm_bias=None, "
      "Tensor? initial=None, Tensor? absent=None, Tensor? restart=None, bool reverse=False, bool silu=False) "
      "-> (Tensor units, Tensor h)");
  m.def(
      "gated_scan_backward(Tensor grad_units, Tensor? grad_h, Tensor decay_logit, Tensor gate_logit, "
      "Tensor norm_weight, Tensor? norm_bias, Tensor? initial, Tensor? absent, Tensor? restart, bool reverse, bool "
      "silu, "
      "Tensor h) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("gated_scan", scan_on_cpu);
  m.impl("gated_scan_backward", gradient_on_cpu);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  m.impl("gated_scan", scan_shapes);
  m.impl("gated_scan_backward", gradient_shapes);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {
  m.impl("gated_scan", announced<gated_scan_by_definition>);
  m.impl("gated_scan_backward", announced<gated_scan_gradient>);
}

}  // namespace fem
