// The transforms of torch.func.
#pragma once

#include <ATen/functorch/DynamicLayer.h>

namespace fem {

// Whether torch.func.grad, vjp, jvp, ... want the operator at hand: they differentiate the definition by themselves,
// and cannot use C++ autograd functions. (vmap alone never shows here: torch calls the operator once per element.)
inline bool under_transform() { return !at::functorch::getDynamicLayerStack().empty(); }

}  // namespace fem
