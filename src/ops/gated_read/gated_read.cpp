#include "ops/gated_read/gated_read.h"

#include <cmath>

#include "ops/checks.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {

void GatedReadOp::check(const Inputs& in) {
  const at::Tensor& mean = in.mean;
  FEM_CHECK(mean.dim() == 4, "gated_read: expected mean of shape [B, T, H, V], got ", shape_of(mean));
  check_float("gated_read", mean);
  FEM_CHECK(in.free_energy.has_value() == in.temperature_logit.has_value(),
            "gated_read: free_energy and temperature_logit belong together, got only ",
            in.free_energy ? "free_energy" : "temperature_logit");
  const auto alike = [&](const char* name, const OptionalTensor& x) {
    if (x) check_like("gated_read", name, *x, "mean", mean, mean.sym_sizes());
  };
  alike("free_energy", in.free_energy);
  alike("temperature_logit", in.temperature_logit);
  alike("gate_logit", in.gate_logit);
}

std::vector<Spec> GatedReadOp::outputs(const Inputs& in) {
  return {{in.mean.sym_sizes().vec(), in.mean.scalar_type()}};
}

GatedReadOp::Outputs GatedReadOp::definition(const Inputs& in) {
  at::Tensor y = in.mean;
  if (in.temperature_logit) {
    const at::Tensor lambda = in.temperature_logit->sigmoid();
    y = (1 - lambda) * in.mean + lambda * *in.free_energy;
  }
  if (!in.gate_logit) return {y};
  const at::Tensor raw = at::softplus(*in.gate_logit) + in.eps;
  const at::Tensor norm = raw.square().sum(-1, true).sqrt().clamp_min(kNormFloor);
  return {y * (raw / norm * std::sqrt(static_cast<double>(raw.size(-1))))};
}

at::Tensor gated_read(const Read& read, const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit,
                      double eps) {
  if (!temperature_logit && !gate_logit) return read.mean;
  const OptionalTensor free_energy = temperature_logit ? if_defined(read.free_energy) : std::nullopt;
  return call<GatedReadOp>({read.mean, free_energy, temperature_logit, gate_logit, eps}).y;
}

at::Tensor gated_read_definition(const Read& read, const OptionalTensor& temperature_logit,
                                 const OptionalTensor& gate_logit, double eps) {
  return GatedReadOp::definition({read.mean, if_defined(read.free_energy), temperature_logit, gate_logit, eps}).y;
}

FEM_REGISTER_OPERATOR(GatedReadOp)

}  // namespace fem
