// Loops that do nothing but arithmetic, or nothing but read memory: what no kernel of this instruction set can pass.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::peak_kernels {

constexpr int64_t kBlock = 1 << 16;  // floats: sum_of's unit

// x <- factor x + factor in registers; returns the number of floating-point operations. *sum is that of all x.
FEM_DECLARE_KERNEL(double, multiply_adds, int64_t rounds, float factor, float* sum)
// Reads blocks x kBlock floats in order.
FEM_DECLARE_KERNEL(float, sum_of, const float* data, int64_t blocks)

}  // namespace fem::peak_kernels
