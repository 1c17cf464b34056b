// One wording for errors: who complains, what was expected, what came, what to do.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string>

// Raises c10::ValueError (ValueError in Python) with the given sentence.
#define FEM_CHECK(condition, ...) TORCH_CHECK_VALUE(condition, __VA_ARGS__)

namespace fem {

// "[2, 128, 8, 64]"
inline std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream out;
  out << '[';
  for (int64_t i = 0; i < tensor.dim(); ++i) out << (i ? ", " : "") << tensor.sym_size(i);
  out << ']';
  return out.str();
}

}  // namespace fem
