#include "support/by_definition.h"

#include "ops/channel_read/channel_read.h"
#include "ops/decay_scan/decay_scan.h"
#include "ops/free_energy_read/free_energy_read.h"
#include "ops/gated_read/gated_read.h"
#include "ops/gated_scan/gated_scan.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear_read/linear_read.h"
#include "ops/modulate/modulate.h"
#include "ops/project/project.h"
#include "ops/register.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/short_convolution/short_convolution.h"
#include "ops/softmax_read/softmax_read.h"
#include "ops/ssm_read/ssm_read.h"
#include "ops/swiglu/swiglu.h"

namespace fem::testing {

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

template <typename... Op>
void run_definitions_of(torch::Library& library) {
  (library.impl(name_of<Op>().c_str(), Signatures<Op>::template forward<Frame<Op>::by_definition>), ...);
}

// Autograd differentiates them by itself.
TORCH_LIBRARY_IMPL(fem, TESTING_ONLY_GenericMode, m) {
  run_definitions_of<SoftmaxReadOp, AttentionReadOp, LinearScanOp, ChannelScanOp, SsmScanOp, DecayScanOp, GatedScanOp,
                     GatedReadOp, FreeEnergyReadOp, ModulateOp, ProjectOp, LayerNormOp, RmsNormOp, ShortConvolutionOp,
                     SwigluOp>(m);
}

}  // namespace fem::testing
