// What the gated_read kernels are given: contiguous rows of V channels, one per (batch, token, head).
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::gate_kernels {

struct Gates {
  bool bfloat16;  // else float32
  int64_t width;  // V
  float eps, norm_floor;
  const void *mean, *free_energy, *temperature_logit, *gate_logit;  // all but mean may be null
};

struct GatesForward : Gates {
  void* out;
};

struct GatesBackward : Gates {
  const void* grad;
  void *grad_mean, *grad_free_energy, *grad_temperature, *grad_gate;
};

// Items are rows; scratch holds V floats, rounded up to whole vectors.
FEM_DECLARE_KERNEL(void, gates, const GatesForward&, int64_t begin, int64_t end, float* scratch)
FEM_DECLARE_KERNEL(void, gates_backward, const GatesBackward&, int64_t begin, int64_t end, float* scratch)

}  // namespace fem::gate_kernels
