// Who wants an operator differentiated, and how.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/functorch/DynamicLayer.h>
#include <torch/csrc/autograd/forward_grad.h>

namespace fem {

// Whether torch.func.grad, vjp, jvp, ... want the operator at hand: they differentiate the definition by themselves,
// and cannot use C++ autograd functions. (vmap alone never shows here: torch calls the operator once per element.)
inline bool under_transform() { return !at::functorch::getDynamicLayerStack().empty(); }

// Nobody does: the kernel is called without a node for it, which costs as much as the kernel when there is one token.
inline bool without_gradients() {
  return !at::GradMode::is_enabled() && !torch::autograd::ForwardADLevel::try_get_by_idx(0);
}

}  // namespace fem
