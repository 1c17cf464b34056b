// From tensors to the short_convolution kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/kernel_tensors.h"
#include "ops/short_convolution/cpu/kernels.h"
#include "ops/short_convolution/short_convolution.h"

namespace fem {
namespace {

using namespace short_convolution_kernels;

// The inputs in the form that arguments point into.
struct ConvolutionTensors {
  at::Tensor x, weight, initial, restart;

  explicit ConvolutionTensors(const ShortConvolutionOp::Inputs& in)
      : x(in.x.contiguous()),
        weight(in.weight.t().to(at::kFloat).contiguous()),
        initial(contiguous(in.initial)),
        restart(contiguous(in.restart)) {}

  template <typename Arguments>
  Arguments arguments(bool silu) const {
    Arguments a{};
    a.bfloat16 = x.scalar_type() == at::kBFloat16;
    a.silu = silu;
    a.batch = x.size(0);
    a.tokens = x.size(1);
    a.channels = x.size(2);
    a.width = weight.size(0);
    a.x = data_of(x);
    a.weight = data_of<float>(weight);
    a.initial = data_of(initial);
    a.restart = data_of<bool>(restart);
    return a;
  }

  int64_t groups() const { return (x.size(2) + kChannels - 1) / kChannels; }
  int64_t grain() const { return std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, x.size(1) * kChannels)); }
};

}  // namespace

void ShortConvolutionOp::kernel(const Inputs& in, Outputs& out) {
  const ConvolutionTensors tensors(in);
  auto a = tensors.arguments<ConvolutionForward>(in.silu);
  a.y = out.y.data_ptr();
  at::parallel_for(0, a.batch * tensors.groups(), tensors.grain(),
                   [&, run = forward()](int64_t begin, int64_t end) { run(a, begin, end); });
}

ShortConvolutionOp::Inputs ShortConvolutionOp::gradient_kernel(const BackwardOf<ShortConvolutionOp>& b) {
  const ConvolutionTensors tensors(b.in);
  const at::Tensor grad = b.grads.y.to(tensors.x.scalar_type()).contiguous();
  const at::Tensor dx = like(tensors.x), dweight = like(tensors.weight), dinitial = like(tensors.initial);
  auto a = tensors.arguments<ConvolutionBackward>(b.in.silu);
  a.grad = data_of(grad);
  a.grad_x = output_of(dx);
  a.grad_weight = output_of<float>(dweight);
  a.grad_initial = output_of(dinitial);
  at::parallel_for(0, tensors.groups(), 1, [&, run = backward()](int64_t begin, int64_t end) { run(a, begin, end); });
  Inputs d{dx, dweight.t().to(b.in.weight.scalar_type()), std::nullopt, std::nullopt, false};
  if (dinitial.defined()) d.initial = dinitial;
  return d;
}

}  // namespace fem
