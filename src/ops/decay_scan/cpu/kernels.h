// What the decay_scan kernels are given.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace fem::decay_kernels {

// All [B, T, C] contiguous except initial and grad_initial [B, C], which may be null.
struct Scan {
  bool bfloat16;  // else float32
  int64_t batch, tokens, channels;
  const void *u, *log_decay, *initial;
  void* h;
};

struct ScanBackward {
  bool bfloat16;
  int64_t batch, tokens, channels;
  const void *grad, *log_decay, *initial, *h;
  void *grad_u, *grad_log_decay, *grad_initial;
};

constexpr int64_t kChannels = 16;  // one cache line of float32: the unit of parallel work

// Items are (batch, group of kChannels channels).
FEM_DECLARE_KERNEL(void, scan, const Scan&, int64_t begin, int64_t end)
FEM_DECLARE_KERNEL(void, scan_backward, const ScanBackward&, int64_t begin, int64_t end)

}  // namespace fem::decay_kernels
