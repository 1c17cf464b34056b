#include "ops/checks.h"

#include "util/check.h"

namespace fem {
namespace {

bool fits(const at::Tensor& x, c10::SymIntArrayRef shape) {
  if (x.dim() != static_cast<int64_t>(shape.size())) return false;
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != kAnySize && x.sym_size(static_cast<int64_t>(i)) != shape[i]) return false;
  return true;
}

// "[2, *, 4]"
std::string spelled(c10::SymIntArrayRef shape) {
  std::ostringstream text;
  for (size_t i = 0; i < shape.size(); ++i) {
    text << (i ? ", " : "[");
    shape[i] == kAnySize ? text << "*" : text << shape[i];
  }
  return text.str() + "]";
}

}  // namespace

bool is_plain(const at::Tensor& x) {
  return x.key_set() - c10::autograd_dispatch_keyset_with_ADInplaceOrView - c10::autocast_dispatch_keyset ==
         c10::DispatchKeySet(c10::DispatchKey::CPU);
}

void check_float(const char* op, const at::Tensor& x) {
  const auto dtype = x.scalar_type();
  FEM_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble, op,
            ": expected float32, bfloat16 or float64, got ", dtype,
            dtype == at::kHalf ? " (float16 cannot hold exp(beta v): cast to bfloat16)" : "; cast with to()");
}

void check_like(const char* op, const char* name, const at::Tensor& x, const char* like_name, const at::Tensor& like,
                c10::SymIntArrayRef shape) {
  FEM_CHECK(fits(x, shape), op, ": expected ", name, " of shape ", spelled(shape), " to match ", like_name, " ",
            shape_of(like), ", got ", shape_of(x));
  FEM_CHECK(x.scalar_type() == like.scalar_type(), op, ": expected ", name, " as ", like.scalar_type(), " like ",
            like_name, ", got ", x.scalar_type());
}

void check_exact(const char* op, const char* name, const at::Tensor& x, c10::SymIntArrayRef shape, at::ScalarType dtype,
                 const char* what) {
  FEM_CHECK(fits(x, shape) && x.scalar_type() == dtype, op, ": expected ", name, " as ", dtype, " ", spelled(shape),
            " ", what, ", got ", x.scalar_type(), " ", shape_of(x));
}

}  // namespace fem
