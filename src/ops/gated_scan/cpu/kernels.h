// What the gated_scan kernels are given.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::gated_scan_kernels {

// [B, T, C] contiguous, except initial [B, C], weight and bias [C] and the marks [B, T]; of these all but weight may be
// null. h and its initial value are float32: rounded at every call, a stream of single tokens would drift.
struct Scan {
  bool bfloat16;  // else float32
  bool reverse;
  bool silu;
  int64_t batch, tokens, channels;
  float gate_eps, gate_floor, norm_eps;
  const void *u, *decay_logit, *gate_logit;
  const float *initial, *weight, *bias;
  const bool *key_mask, *restart;
  float* h;
  void* units;
};

// u is not needed, h is given. grad_u holds dh before the scan and du after it.
struct ScanBackward : Scan {
  const void* grad_units;
  void *grad_u, *grad_decay, *grad_gate;
  float* grad_initial;
};

// What a thread sums up over rows.
struct Sums {
  float *weight, *bias;  // [C]
};

constexpr int64_t kChannels = 16;  // one cache line of float32: the unit of parallel work

// The scans' items are (batch, group of kChannels channels), the rows' are tokens. scratch: scratch_floats(a).
FEM_DECLARE_KERNEL(int64_t, scratch_floats, const Scan&)
FEM_DECLARE_KERNEL(void, scan, const Scan&, int64_t begin, int64_t end)
FEM_DECLARE_KERNEL(void, rows, const Scan&, int64_t begin, int64_t end, float* scratch)
FEM_DECLARE_KERNEL(void, rows_backward, const ScanBackward&, Sums, int64_t begin, int64_t end, float* scratch)
FEM_DECLARE_KERNEL(void, scan_backward, const ScanBackward&, int64_t begin, int64_t end)

}  // namespace fem::gated_scan_kernels
