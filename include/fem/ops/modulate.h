// What the conditioner does to a projection, and what follows in the same pass over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "fem/ops/rotary.h"

namespace fem {

// The factor 1 + hidden weight, formed block by block where it is applied and never stored.
//   hidden [B, T, C]   weight [C, N]
struct Modulation {
  at::Tensor hidden, weight;  // both undefined: the factor is 1

  bool defined() const { return hidden.defined(); }
};

// x [B, T, H, K] times its factor (N = H K), then at most one of
//   table: rotated (rotary.h), and relu(y) + floor if there is a floor
//   limit [H, K], positive: clipped to |y| <= limit
// Gradients flow to x, hidden, weight and limit.
struct AfterModulation {
  std::optional<RotaryTable> table;
  std::optional<double> floor;
  std::optional<at::Tensor> limit;
};
at::Tensor modulate(const at::Tensor& x, const Modulation& modulation, const AfterModulation& after = {});

at::Tensor modulate_definition(const at::Tensor& x, const Modulation& modulation, const AfterModulation& after = {});

}  // namespace fem
