// fem::rms_norm: schema, checks and the choice between kernels and definition.
#include "ops/rms_norm/rms_norm.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "util/check.h"

namespace fem {
namespace {

void check(const at::Tensor& x, const at::Tensor& scale, double eps) {
  FEM_CHECK(x.dim() >= 2, "rms_norm: expected x of shape [..., tokens, D], got ", shape_of(x));
  const auto dtype = x.scalar_type();
  FEM_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble,
            "rms_norm: expected float32, bfloat16 or float64, got ", dtype);
  FEM_CHECK(scale.dim() == 1 && scale.sym_size(0) == x.sym_size(-1),
            "rms_norm: expected scale of shape [D=", x.sym_size(-1), "] to match x ", shape_of(x), ", got ",
            shape_of(scale));
  FEM_CHECK(scale.scalar_type() == dtype && scale.device() == x.device(), "rms_norm: expected scale as ", dtype, " on ",
            x.device(), " like x, got ", scale.scalar_type(), " on ", scale.device());
  FEM_CHECK(eps > 0, "rms_norm: expected a positive eps, got ", eps);
}

at::Tensor norm_on_cpu(const at::Tensor& x, const at::Tensor& scale, double eps) {
  check(x, scale, eps);
  return x.scalar_type() == at::kDouble ? rms_norm_definition(x, scale, eps).contiguous() : rms_norm_cpu(x, scale, eps);
}

at::Tensor norm_shape(const at::Tensor& x, const at::Tensor& scale, double eps) {
  check(x, scale, eps);
  return at::empty_symint(x.sym_sizes(), x.options());
}

Tensors2 gradient_on_cpu(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& scale, double eps) {
  return (x.scalar_type() == at::kDouble ? rms_norm_gradient : rms_norm_backward_cpu)(grad, x, scale, eps);
}

Tensors2 gradient_shapes(const at::Tensor&, const at::Tensor& x, const at::Tensor& scale, double) {
  return {at::empty_symint(x.sym_sizes(), x.options()), at::empty_symint(scale.sym_sizes(), scale.options())};
}

}  // namespace

at::Tensor rms_norm_by_definition(const at::Tensor& x, const at::Tensor& scale, double eps) {
  check(x, scale, eps);
  return rms_norm_definition(x, scale, eps).contiguous();
}

at::Tensor call_rms_norm(const at::Tensor& x, const at::Tensor& scale, double eps) {
  static const auto op = find_operator<RmsNormOp>("fem::rms_norm");
  return op.call(x, scale, eps);
}

Tensors2 call_rms_norm_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& scale, double eps) {
  static const auto op = find_operator<RmsNormBackwardOp>("fem::rms_norm_backward");
  return op.call(grad, x, scale, eps);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& scale, double eps) { return call_rms_norm(x, scale, eps); }

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def("rms_norm(Tensor x, Tensor scale, float eps=1e-05) -> Tensor");
  m.def("rms_norm_backward(Tensor grad, Tensor x, Tensor scale, float eps) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("rms_norm", norm_on_cpu);
  m.impl("rms_norm_backward", gradient_on_cpu);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  m.impl("rms_norm", norm_shape);
  m.impl("rms_norm_backward", gradient_shapes);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {
  m.impl("rms_norm", announced<rms_norm_by_definition>);
  m.impl("rms_norm_backward", announced<rms_norm_gradient>);
}

}  // namespace fem
