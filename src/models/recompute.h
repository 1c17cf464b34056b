#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace fem {

// f(x), keeping nothing but x for backward, which computes f again. Gradients of what f uses besides x are added to
// those tensors' grad, as backward() does.
std::vector<at::Tensor> recomputed(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& f,
                                   const std::vector<at::Tensor>& x);

}  // namespace fem
