#pragma once

#include <string>

namespace fem {

std::string version();                 // of this library, "0.1.0"
std::string instruction_set();         // the kernels in use: "generic", "avx2" or "avx512"
std::string built_instruction_sets();  // those to choose from: "generic, avx2, avx512"
// What multiplies bfloat16 in softmax_read: "AMX", "AVX512_BF16" or "float32 tiles (no AMX or AVX512_BF16)".
std::string bfloat16_products();
bool has_bfloat16_products();  // one of the first two

}  // namespace fem
