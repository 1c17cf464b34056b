// The definition of softmax_read in plain ATen: any device, any float dtype, differentiable any number of times.
#include <ATen/ATen.h>

#include "ops/softmax_read/softmax_read.h"
#include "ops/softmax_read/visibility.h"

namespace fem {
namespace {

at::Tensor heads_first(const at::Tensor& x) { return x.transpose(1, 2); }  // [B, T, H, *] <-> [B, H, T, *]

}  // namespace

SoftmaxReadOp::Outputs SoftmaxReadOp::definition(const Inputs& in) {
  const at::Tensor value = heads_first(real_tokens(in.value, in.key_mask));
  const at::Tensor key = heads_first(real_tokens(in.key, in.key_mask));
  at::Tensor scores = at::matmul(heads_first(in.query) * in.scale_of_scores(), key.transpose(2, 3));
  if (in.is_biased()) scores = (scores + score_bias(in)).to(in.query.scalar_type());
  scores = scores.masked_fill(visibility(in).logical_not(), -INFINITY);
  Outputs out;
  if (in.key.sym_size(1).sym_eq(0).guard_bool(__FILE__, __LINE__)) {
    out.mean = heads_first(at::matmul(scores, value));
    out.log_normalizer =
        at::full({in.query.size(0), in.query.size(1), in.query.size(2)}, -INFINITY, in.query.options());
    if (in.beta) out.free_energy = out.mean / *in.beta;
    return out;
  }
  const at::Tensor highest = scores.detach().amax(-1, true), empty = highest == -INFINITY;
  const at::Tensor shift = highest.masked_fill(empty, 0);
  const at::Tensor unnormalised = at::exp(scores - shift);  // exactly 0 where hidden
  const at::Tensor total = unnormalised.sum(-1, true);
  const at::Tensor p = unnormalised / total.masked_fill(empty, 1);
  out.mean = heads_first(at::matmul(p, value));
  out.log_normalizer = (shift + total.log()).squeeze(-1).detach().transpose(1, 2);
  if (in.beta) {
    const at::Tensor z = at::matmul(p, at::exp(in.beta->unsqueeze(1) * value));
    out.free_energy = heads_first(z.masked_fill(empty, 1).log()) / *in.beta;
  }
  return out;
}

}  // namespace fem
