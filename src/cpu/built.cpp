#include "cpu/built.h"

namespace fem::cpu::FEM_ISA {

Isa needed() {
#if defined(__AVX512F__)
  return Isa::kAvx512;
#elif defined(__AVX2__)
  return Isa::kAvx2;
#else
  return Isa::kGeneric;
#endif
}

}  // namespace fem::cpu::FEM_ISA
