#include "ops/decay_scan/decay_scan.h"

#include "ops/checks.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {

void DecayScanOp::check(const Inputs& in) {
  FEM_CHECK(in.u.dim() == 3, "decay_scan: expected u of shape [B, T, C], got ", shape_of(in.u));
  check_float("decay_scan", in.u);
  check_like("decay_scan", "log_decay", in.log_decay, "u", in.u, in.u.sym_sizes());
  if (in.initial) check_like("decay_scan", "initial", *in.initial, "u", in.u, {in.u.sym_size(0), in.u.sym_size(2)});
}

std::vector<Spec> DecayScanOp::outputs(const Inputs& in) { return {{in.u.sym_sizes().vec(), in.u.scalar_type()}}; }

DecayScanOp::Outputs DecayScanOp::definition(const Inputs& in) {
  return {decay_scan_definition(in.u, in.log_decay, in.initial)};
}

at::Tensor decay_scan_definition(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  if (u.size(1) == 0) return at::empty_like(u);
  const at::Tensor decay = log_decay.exp();
  at::Tensor h = initial ? *initial : at::zeros({u.size(0), u.size(2)}, u.options());
  TensorVector all;
  for (int64_t t = 0; t < u.size(1); ++t) {
    h = decay.select(1, t) * h + u.select(1, t);
    all.push_back(h);
  }
  return at::stack(all, 1);
}

DecayScanOp::Inputs DecayScanOp::gradient(const BackwardOf<DecayScanOp>& b) {
  return decay_scan_gradient(b.grads.h, b.in.log_decay, b.in.initial, b.out.h);
}

DecayScanOp::Inputs decay_scan_gradient(const at::Tensor& grad, const at::Tensor& log_decay,
                                        const OptionalTensor& initial, const at::Tensor& h) {
  if (h.size(1) == 0) return {};
  // dh_t = grad_t + exp(log_decay_{t+1}) dh_{t+1}: the same scan on the reversed sequence
  const at::Tensor next = at::cat({log_decay.slice(1, 1), at::zeros_like(log_decay.slice(1, 0, 1))}, 1);
  const at::Tensor du = decay_scan_definition(grad.flip(1), next.flip(1)).flip(1);
  const at::Tensor before = initial ? *initial : at::zeros({h.size(0), h.size(2)}, h.options());
  const at::Tensor previous = at::cat({before.unsqueeze(1), h.slice(1, 0, -1)}, 1);
  const at::Tensor carried = du * log_decay.exp();
  return {du, carried * previous, carried.select(1, 0)};
}

at::Tensor decay_scan(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  return call<DecayScanOp>({u, log_decay, initial}).h;
}

FEM_REGISTER_OPERATOR(DecayScanOp)

}  // namespace fem
