// The range of exp(beta v) in kernels.
#pragma once

#include "ops/operator.h"

namespace fem {

// Throws if the largest |beta v| that a kernel met leaves float32 no room; largest may be empty.
void check_exponents(const at::Tensor& largest, const char* op);

}  // namespace fem
