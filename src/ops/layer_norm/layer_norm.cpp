#include "ops/layer_norm/layer_norm.h"

#include <ATen/OpMathType.h>

#include "ops/checks.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr double kEps = 1e-5;

}  // namespace

void LayerNormOp::check(const Inputs& in) {
  FEM_CHECK(in.x.dim() >= 2, "layer_norm: expected x of shape [..., tokens, D], got ", shape_of(in.x));
  check_float("layer_norm", in.x);
  check_like("layer_norm", "weight", in.weight, "x", in.x, {in.x.sym_size(-1)});
  if (in.bias) check_like("layer_norm", "bias", *in.bias, "x", in.x, {in.x.sym_size(-1)});
}

std::vector<Spec> LayerNormOp::outputs(const Inputs& in) {
  auto rows = in.x.sym_sizes().vec();
  rows.back() = 1;
  const auto exact = at::toOpMathType(in.x.scalar_type());
  return {{in.x.sym_sizes().vec(), in.x.scalar_type()}, {rows, exact}, {rows, exact}};
}

LayerNormOp::Outputs LayerNormOp::definition(const Inputs& in) {
  const at::Tensor x = in.x.to(at::toOpMathType(in.x.scalar_type())), mean = x.mean(-1, true);
  const at::Tensor rstd = ((x - mean).square().mean(-1, true) + kEps).rsqrt();
  const at::Tensor y = (x - mean) * rstd * in.weight;
  return {(in.bias ? y + *in.bias : y).to(in.x.scalar_type()), mean.detach(), rstd.detach()};
}

void LayerNormOp::kernel(const Inputs& in, Outputs& out) {
  const auto [y, mean, rstd] = at::native_layer_norm(in.x.contiguous(), {in.x.size(-1)}, in.weight, in.bias, kEps);
  out.y = y;
  out.mean.copy_(mean);
  out.rstd.copy_(rstd);
}

LayerNormOp::Inputs LayerNormOp::gradient_kernel(const BackwardOf<LayerNormOp>& b) {
  const at::Tensor& x = b.in.x;
  const auto statistic = [&](const at::Tensor& s) { return s.to(x.scalar_type()).contiguous(); };
  const auto [dx, dweight, dbias] = at::native_layer_norm_backward(
      b.grads.y.to(x.scalar_type()).contiguous(), x.contiguous(), {x.size(-1)}, statistic(b.out.mean),
      statistic(b.out.rstd), b.in.weight, b.in.bias, {b.wanted[0], b.wanted[1], b.wanted[2]});
  return {dx, dweight, if_defined(dbias), false};
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool recompute) {
  return call<LayerNormOp>({x, weight, if_defined(bias), recompute}).y;
}

FEM_REGISTER_OPERATOR(LayerNormOp)

}  // namespace fem
