#pragma once

#include <string>

namespace fem {

std::string version();          // of this library, "0.1.0"
std::string instruction_set();  // the kernels in use: "generic", "avx2" or "avx512"

}  // namespace fem
