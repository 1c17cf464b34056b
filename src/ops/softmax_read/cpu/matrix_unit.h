// The processor's bfloat16 matrix unit (AMX or AVX512_BF16), as kernels see it: a product behind a pointer, so that
// tests can put a plain loop of the same contract in its place.
#pragma once

#include <cstdint>

namespace fem::softmax_kernels {

struct MatrixUnit {
  // C [m x n] float32 = A [m x k] B [k x n], plus C where add; A and B are bfloat16, k is even. A and C are row-major;
  // B holds pairs of rows, element (i, j) at (i / 2) * 2 ldb + 2 j + i % 2.
  void (*multiply)(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc, bool add, const void* a,
                   const void* b, float* c);
  void (*release)();  // by every thread that multiplied, when it is done: other code may need the unit's registers
};

const MatrixUnit* matrix_unit();                    // null: none, or kernels below AVX-512 were asked for
void force_matrix_unit(const MatrixUnit* instead);  // for tests: not thread-safe; null goes back to the processor's own

}  // namespace fem::softmax_kernels
