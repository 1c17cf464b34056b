#include "cpu/isa.h"

#include <ATen/Version.h>
#include <c10/util/Exception.h>

#include "cpu/built.h"
#include "fem/version.h"

namespace fem {
namespace cpu {
namespace {

struct Kernels {
  Isa isa;
  Isa (*needed)();  // null if they were not built
};
const Kernels kKernels[] = {
    {Isa::kGeneric, generic::needed}, {Isa::kAvx2, avx2::needed}, {Isa::kAvx512, avx512::needed}};

Isa processor() {
  const std::string capability = at::get_cpu_capability();
  if (capability == "AVX512") return Isa::kAvx512;
  if (capability == "AVX2") return Isa::kAvx2;
  return Isa::kGeneric;
}

Isa& chosen() {
  static Isa isa = choose_isa(built_isas(), processor());
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

std::string names_of(const std::vector<Isa>& isas) {
  std::string names;
  for (const Isa isa : isas) names += (names.empty() ? "" : ", ") + std::string(name_of(isa));
  return names;
}

std::vector<Isa> built_isas() {
  std::vector<Isa> isas;
  for (const Kernels& kernels : kKernels)
    if (kernels.needed) isas.push_back(kernels.isa);
  return isas;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Kernels& kernels : kKernels)
    if (kernels.needed && kernels.needed() <= processor()) isas.push_back(kernels.isa);
  return isas;
}

Isa choose_isa(const std::vector<Isa>& built, Isa processor) {
  for (auto isa = built.rbegin(); isa != built.rend(); ++isa)
    if (*isa <= processor) return *isa;
  TORCH_CHECK(false, "fem was built with kernels for ", names_of(built),
              " alone, and this processor, as torch sees it, has ", name_of(processor),
              "; build fem with -DFEM_ISAS=native here, or without that option for every processor",
              " (unset ATEN_CPU_CAPABILITY if it holds torch back)");
}

void force_isa(Isa isa) { chosen() = isa; }

}  // namespace cpu

std::string instruction_set() { return cpu::name_of(cpu::active_isa()); }
std::string built_instruction_sets() { return cpu::names_of(cpu::built_isas()); }

}  // namespace fem
