#include "ops/exponents.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "fem/ops/read.h"
#include "util/check.h"

namespace fem {
namespace {

// exp(beta v) and the ratios of backward stay in float32's range up to here; a cap of 40 rounded to bfloat16 fits.
constexpr float kLargestExponent = 41;

}  // namespace

void check_exponents(const at::Tensor& largest, const char* op) {
  const float* values = largest.const_data_ptr<float>();
  const float most = largest.numel() ? *std::max_element(values, values + largest.numel()) : 0;
  FEM_CHECK(!(most > kLargestExponent), op, ": |beta v| reaches ", most,
            " but float32 and bfloat16 allow 40: clip the value first (clip_value), or compute in float64");
}

at::Tensor clip_value(const at::Tensor& value, const at::Tensor& beta, double cap) {
  FEM_CHECK(cap > 0 && cap <= 40, "clip_value: expected cap in (0, 40], got ", cap);
  const at::Tensor limit = cap / beta;
  return value.clamp(-limit, limit);
}

}  // namespace fem
