// From tensors to the gated_read kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/gated_read/cpu/kernels.h"
#include "ops/gated_read/gated_read.h"

namespace fem {
namespace {

using namespace gate_kernels;

// Contiguous tensors kept alive beside the arguments that point into them.
struct Inputs {
  at::Tensor mean, free_energy, temperature_logit, gate_logit;

  void fill(Gates& a, double eps) const {
    const auto data_of = [](const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; };
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

Inputs contiguous(const at::Tensor& mean, const OptionalTensor& free_energy, const OptionalTensor& temperature_logit,
                  const OptionalTensor& gate_logit) {
  const auto of = [](const OptionalTensor& x) { return x ? x->contiguous() : at::Tensor(); };
  return {mean.contiguous(), of(free_energy), of(temperature_logit), of(gate_logit)};
}

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

at::Tensor gated_read_cpu(const at::Tensor& mean, const OptionalTensor& free_energy,
                          const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit, double eps) {
  const Inputs in = contiguous(mean, free_energy, temperature_logit, gate_logit);
  const at::Tensor out = at::empty(mean.sizes(), mean.options());
  GatesForward a{};
  in.fill(a, eps);
  a.out = out.data_ptr();
  for_rows(mean, a, gates());
  return out;
}

Tensors4 gated_read_backward_cpu(const at::Tensor& grad, const at::Tensor& mean, const OptionalTensor& free_energy,
                                 const OptionalTensor& temperature_logit, const OptionalTensor& gate_logit,
                                 double eps) {
  const Inputs in = contiguous(mean, free_energy, temperature_logit, gate_logit);
  const at::Tensor g = grad.to(mean.scalar_type()).contiguous();
  const auto like = [&](bool present) {
    return present ? at::empty(mean.sizes(), mean.options()) : at::empty({0}, mean.options());
  };
  const Tensors4 out{like(true), like(free_energy.has_value()), like(temperature_logit.has_value()),
                     like(gate_logit.has_value())};
  GatesBackward a{};
  in.fill(a, eps);
  a.grad = g.const_data_ptr();
  a.grad_mean = std::get<0>(out).data_ptr();
  a.grad_free_energy = std::get<1>(out).data_ptr();
  a.grad_temperature = std::get<2>(out).data_ptr();
  a.grad_gate = std::get<3>(out).data_ptr();
  for_rows(mean, a, gates_backward());
  return out;
}

}  // namespace fem
