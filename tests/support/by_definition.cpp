#include "support/by_definition.h"

#include <torch/library.h>

namespace fem::testing {
namespace {

// The definition is what other devices run; here autograd differentiates it by itself.
void run_definition(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(fem, TESTING_ONLY_GenericMode, m) {
  for (const char* op : {"softmax_read", "linear_scan", "channel_scan", "ssm_scan", "decay_scan", "gated_scan",
                         "gated_read", "modulate", "project", "rms_norm", "swiglu"})
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<run_definition>());
}

}  // namespace fem::testing
