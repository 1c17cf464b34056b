#include "mixer/check.h"

#include <ATen/ATen.h>

#include "util/check.h"

namespace fem {

void check_batch(const char* who, const at::Tensor& x, const Batch& batch) {
  const auto tokens = x.sym_size(1);
  if (batch.mask) {
    const at::Tensor& mask = *batch.mask;
    FEM_CHECK(mask.scalar_type() == at::kBool && mask.dim() == 2 && mask.sym_size(0) == x.sym_size(0) &&
                  mask.sym_size(1) == tokens && mask.device() == x.device(),
              who, ": expected mask as bool [B=", x.sym_size(0), ", T=", tokens, "] on ", x.device(),
              " (true = a real token), got ", mask.scalar_type(), " ", shape_of(mask), " on ", mask.device());
  }
  if (batch.cu_seqlens) {
    const at::Tensor& borders = *batch.cu_seqlens;
    FEM_CHECK(!batch.mask, who, ": expected mask or cu_seqlens, got both; pack the real tokens alone");
    FEM_CHECK((borders.scalar_type() == at::kInt || borders.scalar_type() == at::kLong) && borders.dim() == 1 &&
                  borders.sym_size(0) >= 2 && borders.device() == x.device(),
              who, ": expected cu_seqlens as int32 or int64 [n + 1] on ", x.device(), ", got ", borders.scalar_type(),
              " ", shape_of(borders), " on ", borders.device());
    FEM_CHECK(x.sym_size(0) == 1, who,
              ": cu_seqlens needs all sequences packed in one row: expected x of shape [1, T, D], got ", shape_of(x));
    // An assertion in the graph, so that tracing needs no values.
    at::_assert_async(borders.diff().ge(0).all().logical_and(borders[0] == 0).logical_and(borders[-1] == tokens),
                      std::string(who) + ": expected cu_seqlens to run from 0 to T without decreasing");
  }
}

void check_call(const at::Tensor& x, const MixerWeights& weights, const MixerOptions& options, const Batch& batch,
                const MixerState* state) {
  const at::Tensor& weight = weights.value.weight;
  FEM_CHECK(x.dim() == 3 && x.sym_size(2) == options.n_embd, "mix: expected x of shape [B, T, D=", options.n_embd,
            "], got ", shape_of(x));
  FEM_CHECK(x.scalar_type() == weight.scalar_type() && x.device() == weight.device(), "mix: expected x as ",
            weight.scalar_type(), " on ", weight.device(), " like the weights, got ", x.scalar_type(), " on ",
            x.device(), "; convert either with to()");
  check_batch("mix", x, batch);
  FEM_CHECK(!state || options.causal,
            "mix: a state needs causal=true, because an encoder's early tokens see later ones; "
            "call forward(x) on the whole sequence");
}

}  // namespace fem
