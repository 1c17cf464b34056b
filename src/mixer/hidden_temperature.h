#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

// The inverse temperature b at which the free energy of values under p is the mean plus lambda times what it is above
// the mean at beta: the one that the inner gate hides. Between 0 and beta for lambda in [0, 1]; dialect paper can ask
// for others: below 0 for a negative lambda, NaN where no value reaches so far.
//   p [..., C, T] with C = 1 or V, some of it positive or all 0   value [..., V, T], 0 where p is   float64
//   lambda, beta [..., V]
at::Tensor hidden_temperature(const at::Tensor& p, const at::Tensor& value, const at::Tensor& lambda,
                              const at::Tensor& beta);

}  // namespace fem
