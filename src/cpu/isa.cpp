#include "cpu/isa.h"

#include <ATen/Version.h>

#include <string>

#include "fem/version.h"

namespace fem {
namespace cpu {
namespace {

Isa detect() {
  const std::string capability = at::get_cpu_capability();
  if (capability == "AVX512") return Isa::kAvx512;
  if (capability == "AVX2") return Isa::kAvx2;
  return Isa::kGeneric;
}

Isa& chosen() {
  static Isa isa = detect();
  return isa;
}

}  // namespace

Isa active_isa() { return chosen(); }

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    default:
      return "generic";
  }
}

std::vector<Isa> available_isas() {
#ifdef FEM_EMULATE_AVX512
  return {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512};
#endif
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512})
    if (isa <= detect()) isas.push_back(isa);
  return isas;
}

void force_isa(Isa isa) { chosen() = isa; }

}  // namespace cpu

std::string instruction_set() { return cpu::name_of(cpu::active_isa()); }
std::string version() { return FEM_VERSION; }

}  // namespace fem
