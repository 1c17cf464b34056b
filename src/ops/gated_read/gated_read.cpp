// fem::gated_read: schema, checks and the choice between kernels and definition.
#include "ops/gated_read/gated_read.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "util/check.h"

namespace fem {
namespace {

void check(const at::Tensor& mean, const OptionalTensor& free_energy, const OptionalTensor& temperature_logit,
           const OptionalTensor& gate_logit) {
  FEM_CHECK(mean.dim() == 4, "gated_read: expected mean of shape [B, T, H, V], got ", shape_of(mean));
  const auto dtype = mean.scalar_type();
  FEM_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble,
            "gated_read: expected float32, bfloat16 or float64, got ", dtype);
  FEM_CHECK(free_energy.has_value() == temperature_logit.has_value(),
            "gated_read: free_energy and temperature_logit belong together, got only ",
            free_energy ? "free_energy" : "temperature_logit");
  const auto alike = [&](const char* name, const OptionalTensor& x) {
    FEM_CHECK(!x || (x->sym_sizes() == mean.sym_sizes() && x->scalar_type() == dtype && x->device() == mean.device()),
              "gated_read: expected ", name, " like mean, ", dtype, " ", shape_of(mean), " on ", mean.device(),
              ", got ", x->scalar_type(), " ", shape_of(*x), " on ", x->device());
  };
  alike("free_energy", free_energy);
  alike("temperature_logit", temperature_logit);
  alike("gate_logit", gate_logit);
}

at::Tensor read_on_cpu(const at::Tensor& mean, const OptionalTensor& free_energy,
                       const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double eps) {
  check(mean, free_energy, temperature_logit, gate_logit);
  const auto read = mean.scalar_type() == at::kDouble ? gated_read_by_definition : gated_read_cpu;
  return read(mean, free_energy, temperature_logit, gate_logit, eps);
}

at::Tensor read_shape(const at::Tensor& mean, const OptionalTensor& free_energy,
                      const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double) {
  check(mean, free_energy, temperature_logit, gate_logit);
  return at::empty_symint(mean.sym_sizes(), mean.options());
}

Tensors4 gradient_on_cpu(const at::Tensor& grad, const at::Tensor& mean, const OptionalTensor& free_energy,
                         const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double eps) {
  const auto gradient = mean.scalar_type() == at::kDouble ? gated_read_gradient : gated_read_backward_cpu;
  return gradient(grad, mean, free_energy, temperature_logit, gate_logit, eps);
}

Tensors4 gradient_shapes(const at::Tensor&, const at::Tensor& mean, const OptionalTensor& free_energy,
                         const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double) {
  const auto like = [&](bool present) {
    return present ? at::empty_symint(mean.sym_sizes(), mean.options()) : at::empty({0}, mean.options());
  };
  return {like(true), like(free_energy.has_value()), like(temperature_logit.has_value()), like(gate_logit.has_value())};
}

}  // namespace

at::Tensor gated_read_by_definition(const at::Tensor& mean, const OptionalTensor& free_energy,
                                    const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit,
                                    double eps) {
  check(mean, free_energy, temperature_logit, gate_logit);
  const Read read{mean, free_energy.value_or(at::Tensor())};
  if (!temperature_logit && !gate_logit) return mean.clone();
  return gated_read_definition(read, temperature_logit, gate_logit, eps).contiguous();
}

at::Tensor call_gated_read(const at::Tensor& mean, const OptionalTensor& free_energy,
                           const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double eps) {
  static const auto op = find_operator<GatedReadOp>("fem::gated_read");
  return op.call(mean, free_energy, temperature_logit, gate_logit, eps);
}

Tensors4 call_gated_read_backward(const at::Tensor& grad, const at::Tensor& mean, const OptionalTensor& free_energy,
                                  const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit,
                                  double eps) {
  static const auto op = find_operator<GatedReadBackwardOp>("fem::gated_read_backward");
  return op.call(grad, mean, free_energy, temperature_logit, gate_logit, eps);
}

at::Tensor gated_read(const Read& read, const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit,
                      double eps) {
  if (!temperature_logit && !gate_logit) return read.mean;
  return call_gated_read(read.mean, temperature_logit ? if_defined(read.free_energy) : std::nullopt, temperature_logit,
                         gate_logit, eps);
}

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "gated_read(Tensor mean, Tensor? free_energy, Tensor? temperature_logit, Tensor? gate_logit, float eps=1e-06) "
      "-> Tensor");
  m.def(
      "gated_read_backward(Tensor grad, Tensor mean, Tensor? free_energy, Tensor? temperature_logit, "
      "Tensor? gate_logit, float eps) -> (Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("gated_read", read_on_cpu);
  m.impl("gated_read_backward", gradient_on_cpu);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  m.impl("gated_read", read_shape);
  m.impl("gated_read_backward", gradient_shapes);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {
  m.impl("gated_read", announced<gated_read_by_definition>);
  m.impl("gated_read_backward", announced<gated_read_gradient>);
}

}  // namespace fem
