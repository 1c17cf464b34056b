#include "mixer/positions.h"

#include <ATen/ATen.h>

namespace fem {

Positions positions_of(const at::Tensor& x, const Batch& batch, const MixerState* state) {
  if (batch.cu_seqlens) {
    const at::Tensor token = at::arange(x.sym_size(1), x.options().dtype(at::kLong));
    const at::Tensor borders = batch.cu_seqlens->to(at::kLong);
    const at::Tensor sequence = at::bucketize(token, borders, /*out_int32=*/false, /*right=*/true);
    const at::Tensor begin = borders.index_select(0, sequence - 1);
    return {token - begin, token == begin, token + 1 == borders.index_select(0, sequence)};
  }
  const int64_t start = state ? state->tokens : 0;
  const bool apart = state && state->positions.defined();  // rows stand at positions of their own
  if (!batch.mask && !apart) return {at::arange(start, x.sym_size(1) + start, x.options().dtype(at::kLong)), {}, {}};
  const at::Tensor index = batch.mask ? batch.mask->cumsum(1) - batch.mask->to(at::kLong)
                                      : at::arange(x.sym_size(1), x.options().dtype(at::kLong));
  return {apart ? index + state->positions.unsqueeze(1) : index + start, {}, {}};
}

}  // namespace fem
