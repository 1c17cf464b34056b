// From tensors to the swiglu kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/swiglu/cpu/kernels.h"
#include "ops/swiglu/swiglu.h"

namespace fem {
namespace {

// Arguments point into gate and up, contiguous.
template <typename Arguments>
Arguments arguments_of(const at::Tensor& gate, const at::Tensor& up) {
  Arguments a{};
  a.bfloat16 = gate.scalar_type() == at::kBFloat16;
  a.elements = gate.numel();
  a.gate = gate.const_data_ptr();
  a.up = up.const_data_ptr();
  return a;
}

template <typename Arguments>
void for_blocks(const Arguments& a, void (*run)(const Arguments&, int64_t, int64_t)) {
  constexpr int64_t kGrain = 1 << 14;  // elements worth a thread
  at::parallel_for(0, (a.elements + swiglu_kernels::kBlock - 1) / swiglu_kernels::kBlock,
                   kGrain / swiglu_kernels::kBlock, [&](int64_t begin, int64_t end) { run(a, begin, end); });
}

}  // namespace

void SwigluOp::kernel(const Inputs& in, Outputs& out) {
  const at::Tensor gate = in.gate.contiguous(), up = in.up.contiguous();
  auto a = arguments_of<swiglu_kernels::SwigluForward>(gate, up);
  a.out = out.y.data_ptr();
  for_blocks(a, swiglu_kernels::forward());
}

SwigluOp::Inputs SwigluOp::gradient_kernel(const BackwardOf<SwigluOp>& b) {
  const at::Tensor gate = b.in.gate.contiguous(), up = b.in.up.contiguous();
  const at::Tensor grad = b.grads.y.to(gate.scalar_type()).contiguous();
  const Inputs d{at::empty(gate.sizes(), gate.options()), at::empty(gate.sizes(), gate.options())};
  auto a = arguments_of<swiglu_kernels::SwigluBackward>(gate, up);
  a.grad = grad.const_data_ptr();
  a.grad_gate = d.gate.data_ptr();
  a.grad_up = d.up.data_ptr();
  for_blocks(a, swiglu_kernels::backward());
  return d;
}

}  // namespace fem
