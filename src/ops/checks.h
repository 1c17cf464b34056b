// The sentences that the checks of several operators share.
#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

constexpr int64_t kAnySize = -1;

// Is x a plain tensor on the CPU, whose numbers are there to be looked at? Not so what is traced, wrapped, batched or
// elsewhere.
bool is_plain(const at::Tensor& x);

// x is float32, bfloat16 or float64.
void check_float(const char* op, const at::Tensor& x);

// x has the shape (kAnySize: whatever) and the dtype of like, which the sentence names.
void check_like(const char* op, const char* name, const at::Tensor& x, const char* like_name, const at::Tensor& like,
                c10::SymIntArrayRef shape);

// x has the shape and the dtype; what: "(the state of an earlier call)" or the like.
void check_exact(const char* op, const char* name, const at::Tensor& x, c10::SymIntArrayRef shape, at::ScalarType dtype,
                 const char* what);

}  // namespace fem
