// The gradient of a definition, by differentiating it.
#pragma once

#include <functional>
#include <vector>

#include "ops/operator.h"

namespace fem {

using Definition = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// d<grads, definition(inputs)> / d input, for every input. Undefined inputs and grads are left out: an undefined input
// has an undefined gradient. Where gradients are being recorded the result is differentiable again.
// Works where operators run below autograd, too.
std::vector<at::Tensor> gradient_of(const Definition& definition, const std::vector<at::Tensor>& inputs,
                                    const std::vector<at::Tensor>& grads);

}  // namespace fem
