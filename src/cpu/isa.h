// Which kernels run: chosen once, by what torch itself found (ATEN_CPU_CAPABILITY forces both).
#pragma once

#include <vector>

namespace fem::cpu {

enum class Isa { kGeneric, kAvx2, kAvx512 };

Isa active_isa();
const char* name_of(Isa isa);
std::vector<Isa> available_isas();  // slowest first
void force_isa(Isa isa);            // for tests: not thread-safe, isa must be available

}  // namespace fem::cpu

// Declares kernel(arguments...) once per ISA, and kernel(isa) that picks one.
#define FEM_DECLARE_KERNEL(result, kernel, ...)     \
  namespace generic {                               \
  result kernel(__VA_ARGS__);                       \
  }                                                 \
  namespace avx2 {                                  \
  result kernel(__VA_ARGS__);                       \
  }                                                 \
  namespace avx512 {                                \
  result kernel(__VA_ARGS__);                       \
  }                                                 \
  inline auto kernel() -> result (*)(__VA_ARGS__) { \
    switch (::fem::cpu::active_isa()) {             \
      case ::fem::cpu::Isa::kAvx512:                \
        return avx512::kernel;                      \
      case ::fem::cpu::Isa::kAvx2:                  \
        return avx2::kernel;                        \
      default:                                      \
        return generic::kernel;                     \
    }                                               \
  }
