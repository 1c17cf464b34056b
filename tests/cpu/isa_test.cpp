#include "cpu/isa.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>

namespace fem::cpu {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(ChooseIsa, TakesTheFastestBuiltThatTheProcessorHas) {
  const std::vector<Isa> all = {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512};
  for (const Isa isa : all) EXPECT_EQ(choose_isa(all, isa), isa);
  EXPECT_EQ(choose_isa({Isa::kGeneric, Isa::kAvx512}, Isa::kAvx2), Isa::kGeneric);
  EXPECT_EQ(choose_isa({Isa::kAvx2}, Isa::kAvx512), Isa::kAvx2);
}

TEST(ChooseIsa, RefusesAProcessorItHasNoKernelsFor) {
  try {
    choose_isa({Isa::kAvx2, Isa::kAvx512}, Isa::kGeneric);
    FAIL() << "was accepted";
  } catch (const c10::Error& error) {
    EXPECT_THAT(
        error.what_without_backtrace(),
        HasSubstr("fem was built with kernels for avx2, avx512 alone, and this processor, as torch sees it, has "
                  "generic; build fem with -DFEM_ISAS=native here"));
  }
}

TEST(ChooseIsa, ChosenIsBuiltAndAvailable) {
  EXPECT_THAT(built_isas(), Contains(active_isa()));
  EXPECT_THAT(available_isas(), Contains(active_isa()));
}

}  // namespace
}  // namespace fem::cpu
