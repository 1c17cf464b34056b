// What the conditioner does to a projection, and what follows in the same pass over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "fem/ops/rotary.h"

namespace fem {

// c = hidden weight, formed block by block where it is applied and never stored.
//   hidden [B, T, C]   weight [C, N]
struct Modulation {
  at::Tensor hidden, weight;  // both undefined: c is 0
  bool added = false;         // x + c instead of x (1 + c)

  bool defined() const { return hidden.defined(); }
};

// x [B, T, H, K] modulated (N = H K), then at most one of
//   rotation: rotated by the tokens' positions (rotary.h), and relu(y) + floor if there is a floor
//   limit [H, K], positive: clipped to |y| <= limit
// Gradients flow to x, hidden, weight and limit.
struct AfterModulation {
  std::optional<Rotation> rotation;
  std::optional<double> floor;
  std::optional<at::Tensor> limit;
};
// recompute: reads, gates and projections that are given the result do not keep it for their backward, which has it
// made again: less memory for more time.
at::Tensor modulate(const at::Tensor& x, const Modulation& modulation, const AfterModulation& after = {},
                    bool recompute = false);

at::Tensor modulate_definition(const at::Tensor& x, const Modulation& modulation, const AfterModulation& after = {});

}  // namespace fem
