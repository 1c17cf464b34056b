#include "models/causal_tokens.h"

#include <ATen/ATen.h>

#include "fem/ops/short_convolution.h"
#include "mixer/positions.h"

namespace fem {

CausalTokens::CausalTokens(const at::Tensor& x, const Batch& batch) {
  if (batch.cu_seqlens) restart = positions_of(x, batch, nullptr).first.unsqueeze(0);
  if (!batch.mask) return;
  const at::Tensor order = at::argsort(batch.mask->logical_not().to(at::kInt), /*stable=*/true, 1);
  real = at::take_along_dim(*batch.mask, order, 1);
  order_ = order.unsqueeze(-1);
  back_ = at::argsort(order, /*stable=*/true, 1).unsqueeze(-1);
}

at::Tensor CausalTokens::real_first(const at::Tensor& x) const {
  return order_.defined() ? at::take_along_dim(x, order_, 1) : x;
}

at::Tensor CausalTokens::as_they_were(const at::Tensor& y) const {
  return back_.defined() ? at::take_along_dim(y, back_, 1) : y;
}

at::Tensor convolve(const at::Tensor& projected, const at::Tensor& weight, const CausalTokens& tokens, bool silu,
                    MixerState* state) {
  const at::Tensor x = projected.to(weight.scalar_type());  // autocast projects in bfloat16
  if (!state) return short_convolution(x, weight, {.restart = tokens.restart, .silu = silu});
  const int64_t before = weight.size(1) - 1;
  at::Tensor& past = state->accumulators["convolution"];
  if (!past.defined()) past = at::zeros({x.size(0), before, x.size(2)}, x.options());
  const at::Tensor y = short_convolution(x, weight, {.initial = past, .silu = silu}), all = at::cat({past, x}, 1);
  if (tokens.real) {
    const at::Tensor last = tokens.real->sum(1, /*keepdim=*/true) + at::arange(before, all.device());
    past = at::take_along_dim(all, last.unsqueeze(-1), 1);
  } else {
    past = all.slice(1, x.size(1)).clone();  // a view would keep all
  }
  return y;
}

MemoryPart convolution_memory(int64_t channels, int64_t width, at::ScalarType dtype) {
  return {"convolution", {width - 1, channels}, dtype};
}

}  // namespace fem
