// What newton_light does around a read of attention.
#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

// The values [.., V] that are read and remembered: [v, v^2], or isotropic [v, |v|^2 / V].
at::Tensor with_squares(const at::Tensor& value, bool isotropic);

// a (1 + alpha (sum p v^2 - a^2)) of their read [.., H, *] under p, whose first V channels are a; alpha [H].
at::Tensor scaled_by_variance(const at::Tensor& moments, const at::Tensor& alpha, int64_t width, bool isotropic);

}  // namespace fem
