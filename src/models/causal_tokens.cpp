#include "models/causal_tokens.h"

#include <ATen/ATen.h>

#include "fem/ops/short_convolution.h"
#include "mixer/positions.h"

namespace fem {

namespace {

// Tokens of x [B, T, C] by their index [B, N]. (take_along_dim fixes the batch of a compiled graph.)
at::Tensor taken(const at::Tensor& x, const at::Tensor& index) {
  return x.gather(1, index.unsqueeze(-1).expand_symint({-1, -1, x.sym_size(2)}));
}

}  // namespace

CausalTokens::CausalTokens(const at::Tensor& x, const Batch& batch) {
  if (batch.cu_seqlens) restart = positions_of(x, batch, nullptr).first.unsqueeze(0);
  if (!batch.mask) return;
  order_ = at::argsort(batch.mask->logical_not().to(at::kInt), /*stable=*/true, 1);
  back_ = at::argsort(order_, /*stable=*/true, 1);
  real = batch.mask->gather(1, order_);
}

at::Tensor CausalTokens::real_first(const at::Tensor& x) const { return order_.defined() ? taken(x, order_) : x; }

at::Tensor CausalTokens::as_they_were(const at::Tensor& y) const { return back_.defined() ? taken(y, back_) : y; }

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
    past = taken(all, last);
  } else {
    past = all.slice(1, x.size(1)).clone();  // a view would keep all
  }
  return y;
}

MemoryPart convolution_memory(int64_t channels, int64_t width, at::ScalarType dtype) {
  return {"convolution", {width - 1, channels}, dtype};
}

}  // namespace fem
