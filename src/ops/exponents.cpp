#include "ops/exponents.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "fem/ops/read.h"
#include "ops/checks.h"
#include "util/check.h"

namespace fem {
namespace {

// exp(beta v) and the ratios of backward stay in float32's range up to here; a cap of 40 rounded to bfloat16 fits.
constexpr float kLargestExponent = 41;

template <typename Scalar>
void check_positive(const char* op, const at::Tensor& beta) {
  const auto rows = beta.accessor<const Scalar, 2>();
  for (int64_t head = 0; head < rows.size(0); ++head)
    for (int64_t channel = 0; channel < rows.size(1); ++channel)
      FEM_CHECK(!(rows[head][channel] <= Scalar(0)), op, ": expected beta > 0, got ", rows[head][channel],
                " in channel ", channel, " of head ", head,
                "; an inverse temperature is positive: softplus keeps a parameter so");
}

}  // namespace

void check_beta(const char* op, const at::Tensor& beta) {
  if (!is_plain(beta)) return;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, beta.scalar_type(), "check_beta",
                                 [&] { check_positive<scalar_t>(op, beta); });
}

void check_exponents(const at::Tensor& largest, const char* op) {
  const float* values = largest.const_data_ptr<float>();
  const float most = largest.numel() ? *std::max_element(values, values + largest.numel()) : 0;
  FEM_CHECK(!(most > kLargestExponent), op, ": |beta v| reaches ", most,
            " but float32 and bfloat16 allow 40: clip the value first (clip_value), or compute in float64");
}

at::Tensor clip_value(const at::Tensor& value, const at::Tensor& beta, double cap) {
  FEM_CHECK(cap > 0 && cap <= 40, "clip_value: expected cap in (0, 40], got ", cap);
  check_float("clip_value", beta);
  FEM_CHECK(beta.dim() == 2, "clip_value: expected beta of shape [H, V], got ", shape_of(beta));
  check_beta("clip_value", beta);
  const at::Tensor limit = cap / beta;
  return value.clamp(-limit, limit);
}

}  // namespace fem
