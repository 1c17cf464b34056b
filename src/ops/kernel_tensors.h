// Tensors in the form that kernels read. Each launch brings all it is given to that form itself: gradients, and what a
// saved-tensor hook returns, come in any strides. What is not given stays undefined, and null.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "cpu/rows.h"
#include "ops/operator.h"

namespace fem {

// Rows whose elements lie side by side, whatever is between the rows: a copy only where they do not.
inline at::Tensor unit_stride(const at::Tensor& x) {
  return !x.defined() || x.size(-1) == 1 || x.stride(-1) == 1 ? x : x.contiguous();
}
inline at::Tensor contiguous(const OptionalTensor& x) { return x ? x->contiguous() : at::Tensor(); }
inline at::Tensor in_dtype(const at::Tensor& x, at::ScalarType dtype) { return x.defined() ? x.to(dtype) : x; }
inline at::Tensor as_float(const OptionalTensor& x) { return x ? x->to(at::kFloat).contiguous() : at::Tensor(); }

// A tensor [B, T, H, *] or [B, T, *].
inline cpu::Rows rows_of(const at::Tensor& x) {
  if (!x.defined()) return {};
  return {x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}
template <typename Number = void>
const Number* data_of(const at::Tensor& x) {
  return x.defined() ? static_cast<const Number*>(x.const_data_ptr()) : nullptr;
}

// Room for a gradient.
inline at::Tensor like(const at::Tensor& x) { return x.defined() ? at::empty(x.sizes(), x.options()) : x; }
inline OptionalTensor like(const OptionalTensor& x) { return x ? OptionalTensor(like(*x)) : x; }
template <typename Number = void>
Number* output_of(const at::Tensor& x) {
  return x.defined() ? static_cast<Number*>(x.mutable_data_ptr()) : nullptr;
}

}  // namespace fem
