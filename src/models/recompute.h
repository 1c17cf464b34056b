#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace fem {

// f(x), keeping nothing but x for backward, which computes f again. Gradients of what f uses besides x are added to
// those tensors' grad, as backward() does.
at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x);

}  // namespace fem
