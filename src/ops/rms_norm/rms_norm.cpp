#include "ops/rms_norm/rms_norm.h"

#include "ops/checks.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {

void RmsNormOp::check(const Inputs& in) {
  FEM_CHECK(in.x.dim() >= 2, "rms_norm: expected x of shape [..., tokens, D], got ", shape_of(in.x));
  check_float("rms_norm", in.x);
  check_like("rms_norm", "scale", in.scale, "x", in.x, {in.x.sym_size(-1)});
  FEM_CHECK(in.eps > 0, "rms_norm: expected a positive eps, got ", in.eps);
}

std::vector<Spec> RmsNormOp::outputs(const Inputs& in) { return {{in.x.sym_sizes().vec(), in.x.scalar_type()}}; }

RmsNormOp::Outputs RmsNormOp::definition(const Inputs& in) {
  return {in.x * (in.x.square().mean(-1, true) + in.eps).rsqrt() * in.scale};
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& scale, double eps) {
  return call<RmsNormOp>({x, scale, eps}).y;
}

at::Tensor rms_norm_definition(const at::Tensor& x, const at::Tensor& scale, double eps) {
  return RmsNormOp::definition({x, scale, eps}).y;
}

FEM_REGISTER_OPERATOR(RmsNormOp)

}  // namespace fem
