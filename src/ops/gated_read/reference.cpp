// The definition of gated_read and of its gradient, in plain ATen.
#include <ATen/ATen.h>

#include "ops/gated_read/gated_read.h"

namespace fem {
namespace {

// g = sqrt(V) raw / norm
struct OuterGate {
  at::Tensor raw, norm, gate;
};

OuterGate outer_gate(const at::Tensor& logit, double eps) {
  const at::Tensor raw = at::softplus(logit) + eps;
  const at::Tensor norm = raw.square().sum(-1, true).sqrt().clamp_min(kNormFloor);
  return {raw, norm, raw / norm * std::sqrt(static_cast<double>(raw.size(-1)))};
}

}  // namespace

at::Tensor gated_read_definition(const Read& read, const OptionalTensor& temperature_logit,
                                 const OptionalTensor& gate_logit, double eps) {
  at::Tensor out = read.mean;
  if (temperature_logit) {
    const at::Tensor lambda = temperature_logit->sigmoid();
    out = (1 - lambda) * read.mean + lambda * read.free_energy;
  }
  return gate_logit ? out * outer_gate(*gate_logit, eps).gate : out;
}

Tensors4 gated_read_gradient(const at::Tensor& grad, const at::Tensor& mean, const OptionalTensor& free_energy,
                             const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double eps) {
  const auto none = [&] { return at::empty({0}, mean.options()); };
  const at::Tensor lambda = temperature_logit ? temperature_logit->sigmoid() : at::Tensor();
  const at::Tensor mixed = temperature_logit ? (1 - lambda) * mean + lambda * *free_energy : mean;
  at::Tensor dmixed = grad, dgate;
  if (gate_logit) {
    const OuterGate g = outer_gate(*gate_logit, eps);
    dmixed = grad * g.gate;
    const at::Tensor dg = grad * mixed * std::sqrt(static_cast<double>(mean.size(-1)));
    const at::Tensor along = (dg * g.raw).sum(-1, true) / g.norm.square();
    const at::Tensor draw = (dg - at::where(g.norm > kNormFloor, along, 0.0) * g.raw) / g.norm;
    dgate = draw * gate_logit->sigmoid();
  }
  if (!gate_logit) dgate = none();
  if (!temperature_logit) return {dmixed.clone(), none(), none(), dgate};
  const at::Tensor dlambda = dmixed * (*free_energy - mean);
  return {dmixed * (1 - lambda), dmixed * lambda, dlambda * lambda * (1 - lambda), dgate};
}

}  // namespace fem
