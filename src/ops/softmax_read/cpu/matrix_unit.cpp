#include "ops/softmax_read/cpu/matrix_unit.h"

#include <ATen/Context.h>
#include <ATen/native/CPUBlas.h>

#include <exception>

#include "cpu/isa.h"
#include "fem/version.h"

namespace fem {
namespace softmax_kernels {
namespace {

namespace cpublas = at::native::cpublas;

void multiply(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc, bool add, const void* a,
              const void* b, float* c) {
  cpublas::brgemm(m, n, k, lda, ldb, ldc, add, static_cast<const at::BFloat16*>(a), static_cast<const at::BFloat16*>(b),
                  c, /*is_vnni=*/true);
}

void release() { cpublas::brgemm_release(/*is_vnni=*/true); }

// torch packs for AMX only, but multiplies wherever there is AVX-512, without AVX512_BF16 by slow emulation.
bool has_unit() {
#ifdef __x86_64__
  return cpublas::could_pack(at::kBFloat16) || __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

// Whether brgemm really multiplies: oneDNN may be held below the processor (ONEDNN_MAX_CPU_ISA), and then it throws.
bool multiplies() {
  const at::BFloat16 a[2] = {3, 5};
  at::BFloat16 b[32];
  for (int j = 0; j < 16; ++j) {
    b[2 * j] = static_cast<float>(j);
    b[2 * j + 1] = 2;
  }
  float c[16] = {};
  try {
    multiply(1, 16, 2, 2, 16, 16, /*add=*/false, a, b, c);
    release();
  } catch (const std::exception&) {
    return false;
  }
  for (int j = 0; j < 16; ++j)
    if (c[j] != static_cast<float>(3 * j + 10)) return false;
  return true;
}

const MatrixUnit* forced = nullptr;

}  // namespace

const MatrixUnit* matrix_unit() {
  static constexpr MatrixUnit kBrgemm{multiply, release};
  if (forced) return forced;
  if (cpu::active_isa() != cpu::Isa::kAvx512 || !at::globalContext().userEnabledMkldnn()) return nullptr;
  static const bool usable = has_unit() && multiplies();
  return usable ? &kBrgemm : nullptr;
}

void force_matrix_unit(const MatrixUnit* instead) { forced = instead; }

}  // namespace softmax_kernels

bool has_bfloat16_products() { return softmax_kernels::matrix_unit() != nullptr; }

std::string bfloat16_products() {
  if (!has_bfloat16_products()) return "float32 tiles (no AMX or AVX512_BF16)";
  return at::native::cpublas::could_pack(at::kBFloat16) ? "AMX" : "AVX512_BF16";
}

}  // namespace fem
