// From tensors to the swiglu kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/swiglu/cpu/kernels.h"
#include "ops/swiglu/swiglu.h"

namespace fem {
namespace {

using namespace swiglu_kernels;

// Contiguous tensors kept alive beside the arguments that point into them.
struct Inputs {
  at::Tensor gate, up;

  Inputs(const at::Tensor& gate, const at::Tensor& up) : gate(gate.contiguous()), up(up.contiguous()) {}

  void fill(Swiglu& a) const {
    a.bfloat16 = gate.scalar_type() == at::kBFloat16;
    a.elements = gate.numel();
    a.gate = gate.const_data_ptr();
    a.up = up.const_data_ptr();
  }
};

template <typename Arguments>
void for_blocks(const Arguments& a, void (*run)(const Arguments&, int64_t, int64_t)) {
  constexpr int64_t kGrain = 1 << 14;  // elements worth a thread
  at::parallel_for(0, (a.elements + kBlock - 1) / kBlock, kGrain / kBlock,
                   [&](int64_t begin, int64_t end) { run(a, begin, end); });
}

}  // namespace

at::Tensor swiglu_cpu(const at::Tensor& gate, const at::Tensor& up) {
  const Inputs in(gate, up);
  const at::Tensor out = at::empty(gate.sizes(), gate.options());
  SwigluForward a{};
  in.fill(a);
  a.out = out.data_ptr();
  for_blocks(a, forward());
  return out;
}

Tensors2 swiglu_backward_cpu(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  const Inputs in(gate, up);
  const at::Tensor g = grad.to(gate.scalar_type()).contiguous();
  const auto like_gate = [&] { return at::empty(gate.sizes(), gate.options()); };
  const at::Tensor dgate = like_gate(), dup = like_gate();
  SwigluBackward a{};
  in.fill(a);
  a.grad = g.const_data_ptr();
  a.grad_gate = dgate.data_ptr();
  a.grad_up = dup.data_ptr();
  for_blocks(a, backward());
  return {dgate, dup};
}

}  // namespace fem
