#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

// The inverse temperature b at which the free energy of values under p is the mean plus a gap: the one that the inner
// gate hides. Below 0 for a gap below 0, which dialect paper can ask for; NaN where no value reaches so far.
//   p [..., C, T] with C = 1 or V   value [..., V, T], any number where p is 0   gap [..., V]   float64
//   beta [..., V]: where to look first
at::Tensor hidden_temperature(const at::Tensor& p, const at::Tensor& value, const at::Tensor& gap,
                              const at::Tensor& beta);

// log(sum_i p_i e^{b d_i}) / b of values d from their mean on, exact down to b = 0; [..., V].
at::Tensor free_energy_above_mean(const at::Tensor& p, const at::Tensor& above_mean, const at::Tensor& b);

}  // namespace fem
