#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

// Is a graph being made, or a shape propagated, so that the tensor has no values to look at? Torch's tracers
// (FakeTensor, functionalization) are tensors that dispatch to Python.
inline bool is_traced(const at::Tensor& tensor) {
  return tensor.is_meta() || tensor.key_set().has(c10::DispatchKey::Python);
}

}  // namespace fem
