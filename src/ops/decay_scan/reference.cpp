// The definition of decay_scan, token by token, and of its gradient.
#include <ATen/ATen.h>

#include <vector>

#include "ops/decay_scan/decay_scan.h"

namespace fem {

at::Tensor decay_scan_definition(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  if (u.size(1) == 0) return at::empty_like(u);
  const at::Tensor decay = log_decay.exp();
  at::Tensor h = initial ? *initial : at::zeros({u.size(0), u.size(2)}, u.options());
  std::vector<at::Tensor> all;
  all.reserve(u.size(1));
  for (int64_t t = 0; t < u.size(1); ++t) {
    h = decay.select(1, t) * h + u.select(1, t);
    all.push_back(h);
  }
  return at::stack(all, 1);
}

Tensors3 decay_scan_gradient(DecayScanOp& scan, const at::Tensor& grad, const at::Tensor& log_decay,
                             const OptionalTensor& initial, const at::Tensor& h) {
  const at::Tensor before = initial ? *initial : at::zeros({h.size(0), h.size(2)}, h.options());
  if (h.size(1) == 0)
    return {at::empty_like(h), at::empty_like(h), initial ? at::zeros_like(before) : at::empty({0}, h.options())};
  // dh_t = grad_t + exp(log_decay_{t+1}) dh_{t+1}: the same scan on the reversed sequence
  const at::Tensor next = at::cat({log_decay.slice(1, 1), at::zeros_like(log_decay.slice(1, 0, 1))}, 1);
  const at::Tensor du = scan(grad.flip(1).contiguous(), next.flip(1).contiguous(), std::nullopt).flip(1).contiguous();
  const at::Tensor previous = at::cat({before.unsqueeze(1), h.slice(1, 0, -1)}, 1);
  const at::Tensor carried = du * log_decay.exp();
  return {du, carried * previous, initial ? carried.select(1, 0).contiguous() : at::empty({0}, h.options())};
}

}  // namespace fem
