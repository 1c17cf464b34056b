// From tensors to the rms_norm kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/rms_norm/cpu/kernels.h"
#include "ops/rms_norm/rms_norm.h"

namespace fem {
namespace {

using namespace norm_kernels;

constexpr int64_t kGrain = 1 << 14;  // elements worth a thread

void fill(Norm& a, const at::Tensor& x, const at::Tensor& scale, double eps) {
  a.bfloat16 = x.scalar_type() == at::kBFloat16;
  a.width = x.size(-1);
  a.eps = static_cast<float>(eps);
  a.x = x.const_data_ptr();
  a.scale = scale.const_data_ptr<float>();
}

}  // namespace

void RmsNormOp::kernel(const Inputs& in, Outputs& out) {
  if (out.y.numel() == 0) return;
  const at::Tensor rows = in.x.contiguous(), factor = in.scale.to(at::kFloat).contiguous();
  NormForward a{};
  fill(a, rows, factor, in.eps);
  a.y = out.y.data_ptr();
  at::parallel_for(0, rows.numel() / a.width, std::max<int64_t>(1, kGrain / a.width),
                   [&, run = norm()](int64_t begin, int64_t end) { run(a, begin, end); });
}

RmsNormOp::Inputs RmsNormOp::gradient_kernel(const BackwardOf<RmsNormOp>& b) {
  const at::Tensor &x = b.in.x, &scale = b.in.scale;
  const at::Tensor dx = at::empty(x.sizes(), x.options());
  if (dx.numel() == 0) return {dx, at::zeros(scale.sizes(), scale.options()), 0};
  const at::Tensor rows = x.contiguous(), factor = scale.to(at::kFloat).contiguous();
  const at::Tensor dy = b.grads.y.to(x.scalar_type()).contiguous();
  NormBackward a{};
  fill(a, rows, factor, b.in.eps);
  a.grad = dy.const_data_ptr();
  a.grad_x = dx.data_ptr();

  // Each part sums the gradient of the scale in memory of its own; the sums are added in order.
  const int64_t count = x.numel() / a.width;
  const int64_t parts = std::clamp<int64_t>(x.numel() / kGrain, 1, at::get_num_threads());
  const at::Tensor sums = at::zeros({parts, a.width}, at::kFloat);
  at::parallel_for(0, parts, 1, [&, run = norm_backward()](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part)
      run(a, sums.data_ptr<float>() + part * a.width, part * count / parts, (part + 1) * count / parts);
  });
  return {dx, sums.sum(0).to(scale.scalar_type()), 0};
}

}  // namespace fem
