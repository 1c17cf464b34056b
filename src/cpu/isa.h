// Which kernels run: chosen once, of those built, by what torch itself found (ATEN_CPU_CAPABILITY lowers both).
#pragma once

#include <string>
#include <vector>

namespace fem::cpu {

enum class Isa { kGeneric, kAvx2, kAvx512 };

Isa active_isa();
const char* name_of(Isa isa);
std::string names_of(const std::vector<Isa>& isas);  // "generic, avx2"
std::vector<Isa> built_isas();                       // slowest first
std::vector<Isa> available_isas();                   // those of them that run here
// The fastest one of those built that the processor has; an error if there is none.
Isa choose_isa(const std::vector<Isa>& built, Isa processor);
void force_isa(Isa isa);  // for tests: not thread-safe, isa must be available

}  // namespace fem::cpu

// A build may leave instruction sets out. Their kernels are then null here, and active_isa() is never one of them.
#ifdef FEM_ISA  // where kernels are defined
#define FEM_IF_BUILT
#else
#define FEM_IF_BUILT __attribute__((weak))
#endif

// Declares kernel(arguments...) once per ISA, and kernel(isa) that picks one.
#define FEM_DECLARE_KERNEL(result, kernel, ...)     \
  namespace generic {                               \
  FEM_IF_BUILT result kernel(__VA_ARGS__);          \
  }                                                 \
  namespace avx2 {                                  \
  FEM_IF_BUILT result kernel(__VA_ARGS__);          \
  }                                                 \
  namespace avx512 {                                \
  FEM_IF_BUILT result kernel(__VA_ARGS__);          \
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
