// From tensors to the gated_read kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/gated_read/cpu/kernels.h"
#include "ops/gated_read/gated_read.h"
#include "ops/kernel_tensors.h"

namespace fem {
namespace {

using namespace gate_kernels;

// Contiguous tensors kept alive beside the arguments that point into them.
struct KernelInputs {
  at::Tensor mean, free_energy, temperature_logit, gate_logit;

  explicit KernelInputs(const GatedReadOp::Inputs& in)
      : mean(in.mean.contiguous()),
        free_energy(contiguous(in.free_energy)),
        temperature_logit(contiguous(in.temperature_logit)),
        gate_logit(contiguous(in.gate_logit)) {}

  void fill(Gates& a, double eps) const {
    a.bfloat16 = mean.scalar_type() == at::kBFloat16;
    a.width = mean.size(-1);
    a.eps = static_cast<float>(eps);
    a.norm_floor = static_cast<float>(kNormFloor);
    a.mean = data_of(mean);
    a.free_energy = data_of(free_energy);
    a.temperature_logit = data_of(temperature_logit);
    a.gate_logit = data_of(gate_logit);
  }
};

template <typename Arguments>
void for_rows(const at::Tensor& mean, const Arguments& a, void (*run)(const Arguments&, int64_t, int64_t, float*)) {
  if (mean.numel() == 0) return;
  constexpr int64_t kGrain = 1 << 14;  // elements worth a thread
  at::parallel_for(0, mean.numel() / a.width, std::max<int64_t>(1, kGrain / a.width), [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(a.width + 16);
    run(a, begin, end, scratch.data());
  });
}

}  // namespace

void GatedReadOp::kernel(const Inputs& in, Outputs& out) {
  const KernelInputs inputs(in);
  GatesForward a{};
  inputs.fill(a, in.eps);
  a.out = out.y.data_ptr();
  for_rows(in.mean, a, gates());
}

GatedReadOp::Inputs GatedReadOp::gradient_kernel(const BackwardOf<GatedReadOp>& b) {
  const KernelInputs inputs(b.in);
  const at::Tensor grad = b.grads.y.to(b.in.mean.scalar_type()).contiguous();
  const at::Tensor dmean = like(inputs.mean), dfree_energy = like(inputs.free_energy),
                   dtemperature = like(inputs.temperature_logit), dgate = like(inputs.gate_logit);
  GatesBackward a{};
  inputs.fill(a, b.in.eps);
  a.grad = grad.const_data_ptr();
  a.grad_mean = output_of(dmean);
  a.grad_free_energy = output_of(dfree_energy);
  a.grad_temperature = output_of(dtemperature);
  a.grad_gate = output_of(dgate);
  for_rows(b.in.mean, a, gates_backward());
  return {dmean, if_defined(dfree_energy), if_defined(dtemperature), if_defined(dgate), 0};
}

}  // namespace fem
