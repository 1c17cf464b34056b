#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

// One size of x, as a number. x.size(dim) would fix every size of x in a graph that is being traced.
inline int64_t size_of(const at::Tensor& x, int64_t dim) { return x.sym_size(dim).guard_int(__FILE__, __LINE__); }
inline int64_t width_of(const at::Tensor& x) { return size_of(x, -1); }

}  // namespace fem
