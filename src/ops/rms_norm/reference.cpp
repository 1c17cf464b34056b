// The definition of rms_norm and of its gradient, in plain ATen.
#include <ATen/ATen.h>

#include "ops/rms_norm/rms_norm.h"

namespace fem {
namespace {

at::Tensor inverse_root(const at::Tensor& x, double eps) { return (x.square().mean(-1, true) + eps).rsqrt(); }

}  // namespace

at::Tensor rms_norm_definition(const at::Tensor& x, const at::Tensor& scale, double eps) {
  return x * inverse_root(x, eps) * scale;
}

Tensors2 rms_norm_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& scale, double eps) {
  const at::Tensor inverse = inverse_root(x, eps), normalised = x * inverse, along = grad * scale;
  const at::Tensor dx = inverse * (along - normalised * (along * normalised).mean(-1, true));
  return {dx.contiguous(), (grad * normalised).flatten(0, -2).sum(0)};
}

}  // namespace fem
