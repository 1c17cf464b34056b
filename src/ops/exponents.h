// The range of exp(beta v) in kernels.
#pragma once

#include "ops/operator.h"

namespace fem {

// Throws if a beta [H, V] is 0 or below, where F = log(z) / beta is none; NaN is let through. Of a tensor whose numbers
// are not there to be looked at nothing is known.
void check_beta(const char* op, const at::Tensor& beta);

// Throws if the largest |beta v| that a kernel met, contiguous float32 on the CPU, leaves float32 no room.
void check_exponents(const at::Tensor& largest, const char* op);

}  // namespace fem
