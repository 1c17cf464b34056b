#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

// The last size of x, as a number. x.size(-1) would fix every size of x in a graph that is being traced.
inline int64_t width_of(const at::Tensor& x) { return x.sym_size(-1).guard_int(__FILE__, __LINE__); }

}  // namespace fem
