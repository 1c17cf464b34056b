// fem::swiglu: schema, checks and the choice between kernels and definition.
#include "ops/swiglu/swiglu.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "util/check.h"

namespace fem {
namespace {

void check(const at::Tensor& gate, const at::Tensor& up) {
  const auto dtype = gate.scalar_type();
  FEM_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble,
            "swiglu: expected float32, bfloat16 or float64, got ", dtype);
  FEM_CHECK(up.sym_sizes() == gate.sym_sizes() && up.scalar_type() == dtype && up.device() == gate.device(),
            "swiglu: expected up like gate, ", dtype, " ", shape_of(gate), " on ", gate.device(), ", got ",
            up.scalar_type(), " ", shape_of(up), " on ", up.device());
}

at::Tensor swiglu_on_cpu(const at::Tensor& gate, const at::Tensor& up) {
  check(gate, up);
  return gate.scalar_type() == at::kDouble ? swiglu_by_definition(gate, up) : swiglu_cpu(gate, up);
}

at::Tensor swiglu_shape(const at::Tensor& gate, const at::Tensor& up) {
  check(gate, up);
  return at::empty_symint(gate.sym_sizes(), gate.options());
}

Tensors2 gradient_on_cpu(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  return gate.scalar_type() == at::kDouble ? swiglu_gradient(grad, gate, up) : swiglu_backward_cpu(grad, gate, up);
}

Tensors2 gradient_shapes(const at::Tensor&, const at::Tensor& gate, const at::Tensor&) {
  const auto like_gate = [&] { return at::empty_symint(gate.sym_sizes(), gate.options()); };
  return {like_gate(), like_gate()};
}

}  // namespace

at::Tensor swiglu_by_definition(const at::Tensor& gate, const at::Tensor& up) {
  check(gate, up);
  return swiglu_definition(gate, up).contiguous();
}

at::Tensor call_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  static const auto op = find_operator<SwigluOp>("fem::swiglu");
  return op.call(gate, up);
}

Tensors2 call_swiglu_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  static const auto op = find_operator<SwigluBackwardOp>("fem::swiglu_backward");
  return op.call(grad, gate, up);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return call_swiglu(gate, up); }

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  m.def("swiglu_backward(Tensor grad, Tensor gate, Tensor up) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("swiglu", swiglu_on_cpu);
  m.impl("swiglu_backward", gradient_on_cpu);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  m.impl("swiglu", swiglu_shape);
  m.impl("swiglu_backward", gradient_shapes);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {
  m.impl("swiglu", announced<swiglu_by_definition>);
  m.impl("swiglu_backward", announced<swiglu_gradient>);
}

}  // namespace fem
