// The range of exp(beta v) in kernels.
#pragma once

#include "ops/operator.h"

namespace fem {

// Throws if the largest |beta v| that a kernel met, contiguous float32 on the CPU, leaves float32 no room.
void check_exponents(const at::Tensor& largest, const char* op);

}  // namespace fem
