#include "support/by_definition.h"

#include <torch/library.h>

#include "ops/channel_read/channel_read.h"
#include "ops/decay_scan/decay_scan.h"
#include "ops/gated_read/gated_read.h"
#include "ops/gated_scan/gated_scan.h"
#include "ops/linear_read/linear_read.h"
#include "ops/modulate/modulate.h"
#include "ops/project/project.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/softmax_read/softmax_read.h"
#include "ops/ssm_read/ssm_read.h"
#include "ops/swiglu/swiglu.h"

namespace fem::testing {

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

// Autograd differentiates them by itself.
TORCH_LIBRARY_IMPL(fem, TESTING_ONLY_GenericMode, m) {
  m.impl("softmax_read", softmax_read_by_definition);
  m.impl("linear_scan", linear_scan_by_definition);
  m.impl("channel_scan", channel_scan_by_definition);
  m.impl("ssm_scan", ssm_scan_by_definition);
  m.impl("decay_scan", decay_scan_by_definition);
  m.impl("gated_scan", gated_scan_by_definition);
  m.impl("gated_read", gated_read_by_definition);
  m.impl("modulate", modulate_by_definition);
  m.impl("project", project_by_definition);
  m.impl("rms_norm", rms_norm_by_definition);
  m.impl("swiglu", swiglu_by_definition);
}

}  // namespace fem::testing
