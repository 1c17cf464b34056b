// The definition of swiglu and of its gradient, in plain ATen.
#include <ATen/ATen.h>

#include "ops/swiglu/swiglu.h"

namespace fem {

at::Tensor swiglu_definition(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

Tensors2 swiglu_gradient(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor sigmoid = gate.sigmoid();
  const at::Tensor slope = sigmoid * (1 + gate * (1 - sigmoid));
  return {(grad * up * slope).contiguous(), (grad * gate * sigmoid).contiguous()};
}

}  // namespace fem
