// From tensors to the decay_scan kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/decay_scan/cpu/kernels.h"
#include "ops/decay_scan/decay_scan.h"
#include "ops/kernel_tensors.h"

namespace fem {
namespace {

using namespace decay_kernels;

int64_t items(const at::Tensor& h) { return h.size(0) * ((h.size(2) + kChannels - 1) / kChannels); }

}  // namespace

void DecayScanOp::kernel(const Inputs& in, Outputs& out) {
  const at::Tensor u = in.u.contiguous(), decay = in.log_decay.contiguous(), start = contiguous(in.initial);
  const Scan a{u.scalar_type() == at::kBFloat16,
               u.size(0),
               u.size(1),
               u.size(2),
               data_of(u),
               data_of(decay),
               data_of(start),
               out.h.data_ptr()};
  at::parallel_for(0, items(u), 1, [&, run = scan()](int64_t begin, int64_t end) { run(a, begin, end); });
}

DecayScanOp::Inputs DecayScanOp::gradient_kernel(const BackwardOf<DecayScanOp>& b) {
  const at::Tensor h = b.out.h.contiguous(), decay = b.in.log_decay.contiguous(), start = contiguous(b.in.initial);
  const at::Tensor g = b.grads.h.to(h.scalar_type()).contiguous();
  const auto like_h = [&](at::IntArrayRef shape) { return at::empty(shape, h.options()); };
  const at::Tensor du = like_h(h.sizes()), ddecay = like_h(h.sizes());
  const at::Tensor dinitial = like_h({h.size(0), start.defined() ? h.size(2) : 0});
  const ScanBackward a{h.scalar_type() == at::kBFloat16,
                       h.size(0),
                       h.size(1),
                       h.size(2),
                       data_of(g),
                       data_of(decay),
                       data_of(start),
                       data_of(h),
                       du.data_ptr(),
                       ddecay.data_ptr(),
                       dinitial.data_ptr()};
  at::parallel_for(0, items(h), 1, [&, run = scan_backward()](int64_t begin, int64_t end) { run(a, begin, end); });
  return {du, ddecay, dinitial};
}

}  // namespace fem
