// The free-energy read over a prior that the user brings.
#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

struct FreeEnergyRead {
  at::Tensor free_energy;  // F_tj = 1/beta_j log sum_i p_t(i) exp(beta_j v_ij)
  at::Tensor posterior;    // sum_i q_tj(i) v_ij under the tilted prior q_tj(i) ~ p_t(i) exp(beta_j v_ij)
};

//   p [B, H, Tq, Tk], not negative   v [B, Tk, H, V]   beta [H, V], positive   ->   [B, Tq, H, V] both
// The rows of p are normalised first; a row of zeros reads 0, with zero gradients. Gradients flow to p, v and beta.
// Nothing overflows, whatever beta v: exponents are taken relative to the highest of each channel. Plain ATen on every
// device; p holds Tq x Tk anyway.
FreeEnergyRead free_energy_read(const at::Tensor& p, const at::Tensor& v, const at::Tensor& beta);

}  // namespace fem
