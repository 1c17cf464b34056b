#include "mixer/streaming.h"

#include <ATen/ATen.h>

namespace fem {
namespace {

// By the tokens of a call.
void advance(MixerState& state, const at::Tensor& x, const Batch& batch) {
  // While no mask was seen every row stands at the same position.
  if (batch.mask && !state.positions.defined())
    state.positions = at::full({x.size(0)}, state.tokens, x.options().dtype(at::kLong));
  if (batch.mask)
    state.positions = state.positions + batch.mask->sum(1);
  else if (state.positions.defined())
    state.positions = state.positions + x.size(1);
  state.tokens += x.size(1);
}

}  // namespace

at::Tensor stream(const char* who, const at::Tensor& x, const Batch& batch, const Memory& memory, MixerState& state,
                  const std::function<at::Tensor(MixerState&)>& layer) {
  check_continues(who, state, memory, x, batch);
  const at::NoGradGuard no_gradients;
  MixerState next = state;  // cheap
  at::Tensor y = layer(next);
  if (x.size(1) == 0) return y;  // no tokens begin nothing
  advance(next, x, batch);
  next.layer = memory.layer;
  state = std::move(next);
  return y;
}

}  // namespace fem
