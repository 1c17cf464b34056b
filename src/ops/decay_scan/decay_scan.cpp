// fem::decay_scan: schema, checks and the choice between kernels and definition.
#include "ops/decay_scan/decay_scan.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "util/check.h"

namespace fem {
namespace {

void check(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  FEM_CHECK(u.dim() == 3, "decay_scan: expected u of shape [B, T, C], got ", shape_of(u));
  FEM_CHECK(log_decay.sym_sizes() == u.sym_sizes(), "decay_scan: expected log_decay of u's shape ", shape_of(u),
            ", got ", shape_of(log_decay));
  const auto dtype = u.scalar_type();
  FEM_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble,
            "decay_scan: expected float32, bfloat16 or float64, got ", dtype);
  FEM_CHECK(log_decay.scalar_type() == dtype && log_decay.device() == u.device(), "decay_scan: expected log_decay as ",
            dtype, " on ", u.device(), ", got ", log_decay.scalar_type(), " on ", log_decay.device());
  if (!initial) return;
  FEM_CHECK(initial->dim() == 2 && initial->sym_size(0) == u.sym_size(0) && initial->sym_size(1) == u.sym_size(2) &&
                initial->scalar_type() == dtype && initial->device() == u.device(),
            "decay_scan: expected initial as ", dtype, " [B=", u.sym_size(0), ", C=", u.sym_size(2), "] on ",
            u.device(), ", got ", initial->scalar_type(), " ", shape_of(*initial), " on ", initial->device());
}

at::Tensor scan_on_cpu(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  check(u, log_decay, initial);
  return u.scalar_type() == at::kDouble ? decay_scan_definition(u, log_decay, initial)
                                        : decay_scan_cpu(u, log_decay, initial);
}

at::Tensor scan_shape(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  check(u, log_decay, initial);
  return at::empty_symint(u.sym_sizes(), u.options());
}

Tensors3 gradient_by_definition(const at::Tensor& grad, const at::Tensor& log_decay, const OptionalTensor& initial,
                                const at::Tensor& h) {
  return decay_scan_gradient(decay_scan_definition, grad, log_decay, initial, h);
}

Tensors3 gradient_on_cpu(const at::Tensor& grad, const at::Tensor& log_decay, const OptionalTensor& initial,
                         const at::Tensor& h) {
  const auto gradient = h.scalar_type() == at::kDouble ? gradient_by_definition : decay_scan_backward_cpu;
  return gradient(grad, log_decay, initial, h);
}

Tensors3 gradient_shapes(const at::Tensor&, const at::Tensor& log_decay, const OptionalTensor& initial,
                         const at::Tensor& h) {
  const auto like = [](const at::Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  return {like(h), like(h), initial ? like(*initial) : at::empty({0}, h.options())};
}

}  // namespace

at::Tensor decay_scan_by_definition(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  check(u, log_decay, initial);
  return decay_scan_definition(u, log_decay, initial);
}

at::Tensor call_decay_scan(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  static const auto op = find_operator<DecayScanOp>("fem::decay_scan");
  return op.call(u, log_decay, initial);
}

Tensors3 call_decay_scan_backward(const at::Tensor& grad, const at::Tensor& log_decay, const OptionalTensor& initial,
                                  const at::Tensor& h) {
  static const auto op = find_operator<DecayScanBackwardOp>("fem::decay_scan_backward");
  return op.call(grad, log_decay, initial, h);
}

at::Tensor decay_scan(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  return call_decay_scan(u, log_decay, initial);
}

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def("decay_scan(Tensor u, Tensor log_decay, Tensor? initial=None) -> Tensor");
  m.def("decay_scan_backward(Tensor grad, Tensor log_decay, Tensor? initial, Tensor h) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("decay_scan", scan_on_cpu);
  m.impl("decay_scan_backward", gradient_on_cpu);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  m.impl("decay_scan", scan_shape);
  m.impl("decay_scan_backward", gradient_shapes);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {
  m.impl("decay_scan", announced<decay_scan_by_definition>);
  m.impl("decay_scan_backward", announced<gradient_by_definition>);
}

}  // namespace fem
