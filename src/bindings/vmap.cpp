// torch.func.vmap: what is composed of other operators, or of plain ATen alone, is taken apart, as torch does with its
// own. The kernels have no batched form: torch calls them once per element.
#include <torch/library.h>

#include "util/check.h"

namespace fem {
namespace {

void decompose(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);  // on every device the same composition
}

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  FEM_CHECK(false, op.schema().operator_name().name,
            ": torch.func.vmap cannot continue a state, which belongs to one batch: pass x as [B, T, D] without vmap");
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, FuncTorchBatched, m) {
  for (const char* op : {"free_energy_attention", "free_energy_read", "linear_read", "channel_read", "ssm_read", "mix",
                         "backbone", "energy", "energy_gradient", "energy_hessian_product", "newton_step"})
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<decompose>());
  for (const char* op : {"mix_with_state", "backbone_with_states"})
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<refuse>());
}

}  // namespace fem
