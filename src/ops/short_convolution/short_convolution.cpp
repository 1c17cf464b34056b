#include "ops/short_convolution/short_convolution.h"

#include "ops/checks.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {

void ShortConvolutionOp::check(const Inputs& in) {
  const char* op = "short_convolution";
  FEM_CHECK(in.x.dim() == 3, "short_convolution: expected x of shape [B, T, C], got ", shape_of(in.x));
  check_float(op, in.x);
  check_like(op, "weight", in.weight, "x", in.x, {in.x.sym_size(2), kAnySize});
  const c10::SymInt width = in.weight.sym_size(1);
  FEM_CHECK(width >= 2 && width <= 4, "short_convolution: expected weight of 2 to 4 tokens, got ", shape_of(in.weight));
  if (in.initial) check_like(op, "initial", *in.initial, "x", in.x, {in.x.sym_size(0), width - 1, in.x.sym_size(2)});
  if (in.restart)
    check_exact(op, "restart", *in.restart, {in.x.sym_size(0), in.x.sym_size(1)}, at::kBool,
                "(true: forgets what came before)");
}

std::vector<Spec> ShortConvolutionOp::outputs(const Inputs& in) {
  return {{in.x.sym_sizes().vec(), in.x.scalar_type()}};
}

ShortConvolutionOp::Outputs ShortConvolutionOp::definition(const Inputs& in) {
  const int64_t length = in.x.size(1), before = in.weight.size(1) - 1;
  const at::Tensor past = in.initial ? *in.initial : at::zeros({in.x.size(0), before, in.x.size(2)}, in.x.options());
  const at::Tensor all = at::cat({past, in.x}, 1);
  at::Tensor sequence;  // [B, before + T] which one a token belongs to
  if (in.restart) sequence = at::constant_pad_nd(in.restart->cumsum(1), {before, 0});
  at::Tensor y = in.x * in.weight.select(1, before);
  for (int64_t tap = 0; tap < before; ++tap) {
    at::Tensor x = all.narrow(1, tap, length);
    if (in.restart) {
      const at::Tensor forgotten = sequence.narrow(1, tap, length) != sequence.narrow(1, before, length);
      x = x.masked_fill(forgotten.unsqueeze(-1), 0);
    }
    y = y + x * in.weight.select(1, tap);
  }
  return {in.silu ? at::silu(y) : y};
}

at::Tensor short_convolution(const at::Tensor& x, const at::Tensor& weight, const ShortConvolutionOptions& options) {
  return call<ShortConvolutionOp>({x, weight, options.initial, options.restart, options.silu}).y;
}

at::Tensor short_convolution_definition(const at::Tensor& x, const at::Tensor& weight,
                                        const ShortConvolutionOptions& options) {
  return ShortConvolutionOp::definition({x, weight, options.initial, options.restart, options.silu}).y;
}

FEM_REGISTER_OPERATOR(ShortConvolutionOp)

}  // namespace fem
