// The vector functions of src/cpu/vec.h applied to arrays, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::vec_test {

FEM_DECLARE_KERNEL(void, apply_exp, const float* x, float* y, int64_t n)
FEM_DECLARE_KERNEL(void, apply_guarded_exp, const float* x, float* y, int64_t n)
FEM_DECLARE_KERNEL(void, apply_log, const float* x, float* y, int64_t n)
FEM_DECLARE_KERNEL(void, apply_sigmoid, const float* x, float* y, int64_t n)
FEM_DECLARE_KERNEL(void, apply_softplus, const float* x, float* y, int64_t n)
FEM_DECLARE_KERNEL(void, to_bfloat16, const float* x, uint16_t* y, int64_t n)

}  // namespace fem::vec_test
