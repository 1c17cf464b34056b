#include "ops/free_energy_read/free_energy_read.h"

#include <ATen/OpMathType.h>

#include "ops/checks.h"
#include "ops/exponents.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {

void FreeEnergyReadOp::check(const Inputs& in) {
  const char* op = "free_energy_read";
  const auto &p = in.p, &v = in.v;
  FEM_CHECK(p.dim() == 4, "free_energy_read: expected p of shape [B, H, Tq, Tk], got ", shape_of(p));
  check_float(op, p);
  check_like(op, "v", v, "p", p, {p.sym_size(0), p.sym_size(3), p.sym_size(1), kAnySize});
  check_like(op, "beta", in.beta, "v", v, {v.sym_size(2), v.sym_size(3)});
  check_beta(op, in.beta);
}

std::vector<Spec> FreeEnergyReadOp::outputs(const Inputs& in) {
  const std::vector<c10::SymInt> shape{in.p.sym_size(0), in.p.sym_size(2), in.p.sym_size(1), in.v.sym_size(3)};
  return {{shape, in.p.scalar_type()}, {shape, in.p.scalar_type()}};
}

FreeEnergyReadOp::Outputs FreeEnergyReadOp::definition(const Inputs& in) {
  const auto wide = at::toOpMathType(in.p.scalar_type());
  const at::Tensor v = in.v.to(wide).transpose(1, 2), beta = in.beta.to(wide).unsqueeze(1);  // [B, H, Tk, V], [H, 1, V]
  const at::Tensor total = in.p.to(wide).sum(-1, true), empty = total == 0;
  const at::Tensor p = (in.p.to(wide) / total.masked_fill(empty, 1)).masked_fill(empty, 0), exponent = beta * v;
  if (in.p.sym_size(3).sym_eq(0).guard_bool(__FILE__, __LINE__)) {
    const at::Tensor nothing = at::matmul(p, v).transpose(1, 2);
    return {nothing, nothing.clone()};
  }
  // A choice of units, without a gradient of its own.
  const at::Tensor highest = exponent.detach().amax(2, true);
  const at::Tensor tilt = (exponent - highest).exp();
  const at::Tensor z = at::matmul(p, tilt).masked_fill(empty, 1);
  const at::Tensor free_energy = ((z.log() + highest) / beta).masked_fill(empty, 0);
  const at::Tensor posterior = at::matmul(p, tilt * v) / z;
  return {free_energy.transpose(1, 2), posterior.transpose(1, 2)};
}

FreeEnergyRead free_energy_read(const at::Tensor& p, const at::Tensor& v, const at::Tensor& beta) {
  const auto [free_energy, posterior] = call<FreeEnergyReadOp>({p, v, beta});
  return {free_energy, posterior};
}

FEM_REGISTER_OPERATOR(FreeEnergyReadOp)

}  // namespace fem
