// A matrix unit of plain loops, to test the kernels around it on processors without one, and none on processors with.
#pragma once

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "ops/softmax_read/cpu/matrix_unit.h"

namespace fem::testing {

// While alive, bfloat16 goes through float32 tiles.
class NoMatrixUnit {
 public:
  NoMatrixUnit() : before_(at::globalContext().userEnabledMkldnn()) {
    at::globalContext().setUserEnabledMkldnn(false);
    EXPECT_EQ(softmax_kernels::matrix_unit(), nullptr);
  }
  ~NoMatrixUnit() { at::globalContext().setUserEnabledMkldnn(before_); }

 private:
  const bool before_;
};

class PlainMatrixUnit {
 public:
  // While alive, the kernels multiply by it.
  PlainMatrixUnit() {
    static constexpr softmax_kernels::MatrixUnit kUnit{multiply, release};
    products() = 0;
    softmax_kernels::force_matrix_unit(&kUnit);
  }
  ~PlainMatrixUnit() {
    softmax_kernels::force_matrix_unit(nullptr);
    EXPECT_GT(products(), 0) << "the kernels did not use the matrix unit";
    EXPECT_EQ(holders(), 0) << "a thread did not release the matrix unit";
  }

  static void multiply(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc, bool add, const void* a,
                       const void* b, float* c) {
    EXPECT_TRUE(m > 0 && n > 0 && k > 0 && k % 2 == 0 && lda >= k && ldb >= n && ldc >= n)
        << m << " x " << n << " x " << k << ", " << lda << ", " << ldb << ", " << ldc;
    if (!std::exchange(holding(), true)) ++holders();
    ++products();
    const auto *left = static_cast<const uint16_t*>(a), *right = static_cast<const uint16_t*>(b);
    for (int64_t i = 0; i < m; ++i) {
      if (!add) std::fill_n(c + i * ldc, n, 0.0f);
      for (int64_t l = 0; l < k; ++l) {
        const float x = value_of(left[i * lda + l]);
        const uint16_t* row = right + l / 2 * 2 * ldb + l % 2;
        for (int64_t j = 0; j < n; ++j) c[i * ldc + j] += x * value_of(row[2 * j]);
      }
    }
  }
  static void release() {
    if (std::exchange(holding(), false)) --holders();
  }

 private:
  // The hardware takes denormal numbers as 0.
  static float value_of(uint16_t bits) {
    const uint32_t word = bits & 0x7f80 ? uint32_t{bits} << 16 : 0;
    float x;
    std::memcpy(&x, &word, sizeof(x));
    return x;
  }
  static std::atomic<int64_t>& products() {
    static std::atomic<int64_t> count;
    return count;
  }
  static std::atomic<int64_t>& holders() {
    static std::atomic<int64_t> count;
    return count;
  }
  static bool& holding() {
    static thread_local bool holds = false;
    return holds;
  }
};

}  // namespace fem::testing
