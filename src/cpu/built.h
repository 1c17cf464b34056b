// Which kernels were linked: FEM_ISAS of the build decides, and nothing but the linker knows. A function that was not
// linked has no address.
#pragma once

#include "cpu/isa.h"

namespace fem::cpu {

// What the processor needs to run the kernels of that name: less than the name says where they are emulated.
namespace generic {
FEM_IF_BUILT Isa needed();
}
namespace avx2 {
FEM_IF_BUILT Isa needed();
}
namespace avx512 {
FEM_IF_BUILT Isa needed();
}

}  // namespace fem::cpu
