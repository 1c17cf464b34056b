// From tensors to the decay_scan kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/decay_scan/cpu/kernels.h"
#include "ops/decay_scan/decay_scan.h"

namespace fem {
namespace {

using namespace decay_kernels;

const void* data_of(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }
at::Tensor contiguous(const OptionalTensor& x) { return x ? x->contiguous() : at::Tensor(); }
int64_t items(const at::Tensor& h) { return h.size(0) * ((h.size(2) + kChannels - 1) / kChannels); }

}  // namespace

at::Tensor decay_scan_cpu(const at::Tensor& u, const at::Tensor& log_decay, const OptionalTensor& initial) {
  const at::Tensor input = u.contiguous(), decay = log_decay.contiguous(), start = contiguous(initial);
  const at::Tensor h = at::empty(u.sizes(), u.options());
  const Scan a{u.scalar_type() == at::kBFloat16,
               u.size(0),
               u.size(1),
               u.size(2),
               data_of(input),
               data_of(decay),
               data_of(start),
               h.data_ptr()};
  at::parallel_for(0, items(h), 1, [&, run = scan()](int64_t begin, int64_t end) { run(a, begin, end); });
  return h;
}

Tensors3 decay_scan_backward_cpu(const at::Tensor& grad, const at::Tensor& log_decay, const OptionalTensor& initial,
                                 const at::Tensor& h) {
  const at::Tensor g = grad.to(h.scalar_type()).contiguous(), decay = log_decay.contiguous();
  const at::Tensor start = contiguous(initial), output = h.contiguous();
  const at::Tensor du = at::empty(h.sizes(), h.options()), ddecay = at::empty(h.sizes(), h.options());
  const at::Tensor dinitial = initial ? at::empty(initial->sizes(), h.options()) : at::empty({0}, h.options());
  const ScanBackward a{h.scalar_type() == at::kBFloat16,
                       h.size(0),
                       h.size(1),
                       h.size(2),
                       data_of(g),
                       data_of(decay),
                       data_of(start),
                       data_of(output),
                       du.data_ptr(),
                       ddecay.data_ptr(),
                       dinitial.data_ptr()};
  at::parallel_for(0, items(h), 1, [&, run = scan_backward()](int64_t begin, int64_t end) { run(a, begin, end); });
  return {du, ddecay, dinitial};
}

}  // namespace fem
