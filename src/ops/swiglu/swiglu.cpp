#include "ops/swiglu/swiglu.h"

#include "ops/checks.h"
#include "ops/register.h"

namespace fem {

void SwigluOp::check(const Inputs& in) {
  check_float("swiglu", in.gate);
  check_like("swiglu", "up", in.up, "gate", in.gate, in.gate.sym_sizes());
}

std::vector<Spec> SwigluOp::outputs(const Inputs& in) { return {{in.gate.sym_sizes().vec(), in.gate.scalar_type()}}; }

SwigluOp::Outputs SwigluOp::definition(const Inputs& in) { return {at::silu(in.gate) * in.up}; }

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return call<SwigluOp>({gate, up}).y; }

at::Tensor swiglu_definition(const at::Tensor& gate, const at::Tensor& up) {
  return SwigluOp::definition({gate, up}).y;
}

FEM_REGISTER_OPERATOR(SwigluOp)

}  // namespace fem
