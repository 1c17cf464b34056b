// The definition of softmax_read and of its gradient, in plain ATen: any device, any float dtype, differentiable again.
#include "ops/softmax_read/reference.h"

#include <ATen/ATen.h>

#include "ops/softmax_read/visibility.h"
#include "util/width.h"

namespace fem {
namespace {

at::Tensor heads_first(const at::Tensor& x) { return x.transpose(1, 2); }  // [B, T, H, *] <-> [B, H, T, *]

struct Prior {
  at::Tensor weights;         // p [B, H, Tq, Tk]
  at::Tensor log_normalizer;  // [B, H, Tq]
  at::Tensor empty;           // [B, H, Tq, 1] queries that see nothing
};

Prior softmax_prior(const at::Tensor& query, const at::Tensor& key, const SoftmaxReadOptions& options) {
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(width_of(query))));
  const at::Tensor hidden = visibility(query, key, options).logical_not();
  const at::Tensor scores =
      at::matmul(heads_first(query) * scale, heads_first(key).transpose(2, 3)).masked_fill(hidden, -INFINITY);
  if (key.sym_size(1).sym_eq(0).guard_bool(__FILE__, __LINE__)) {
    const at::Tensor none = at::full({query.size(0), query.size(2), query.size(1)}, -INFINITY, query.options());
    return {scores, none, at::ones_like(none, at::kBool).unsqueeze(-1)};
  }
  const at::Tensor highest = scores.detach().amax(-1, true);
  const at::Tensor empty = highest == -INFINITY;
  const at::Tensor shift = highest.masked_fill(empty, 0);
  const at::Tensor unnormalised = at::exp(scores - shift);  // exactly 0 where hidden
  const at::Tensor total = unnormalised.sum(-1, true);
  return {unnormalised / total.masked_fill(empty, 1), (shift + total.log()).squeeze(-1), empty};
}

}  // namespace

SoftmaxRead softmax_read_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                    const std::optional<at::Tensor>& beta, const SoftmaxReadOptions& options) {
  const at::Tensor real_value = real_tokens(value, options);
  const Prior p = softmax_prior(query, real_tokens(key, options), options);
  SoftmaxRead read;
  read.mean = heads_first(at::matmul(p.weights, heads_first(real_value)));
  read.log_normalizer = p.log_normalizer.detach().transpose(1, 2);
  if (beta) {
    const at::Tensor z = at::matmul(p.weights, heads_first(at::exp(*beta * real_value)));
    read.free_energy = heads_first(z.masked_fill(p.empty, 1).log()) / *beta;
  }
  return read;
}

SoftmaxReadGradients softmax_read_definition_backward(const at::Tensor& grad_mean, const at::Tensor& grad_free_energy,
                                                      const at::Tensor& query, const at::Tensor& key,
                                                      const at::Tensor& value, const std::optional<at::Tensor>& beta,
                                                      const SoftmaxReadOptions& options) {
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(width_of(query))));
  const at::Tensor real_key = real_tokens(key, options);
  const Prior prior = softmax_prior(query, real_key, options);
  const at::Tensor& p = prior.weights;
  const at::Tensor v = heads_first(real_tokens(value, options));
  const at::Tensor dmean = heads_first(grad_mean);
  // dp <- dmean v^T + dz e^T
  at::Tensor dp = at::matmul(dmean, v.transpose(2, 3));
  at::Tensor dv = at::matmul(p.transpose(2, 3), dmean);
  at::Tensor dbeta;
  if (beta) {
    const at::Tensor b = beta->unsqueeze(1);  // [H, 1, V]
    const at::Tensor e = at::exp(b * v);
    const at::Tensor z = at::matmul(p, e).masked_fill(prior.empty, 1);
    const at::Tensor dfree = heads_first(grad_free_energy.to(v.scalar_type())).masked_fill(prior.empty, 0);
    const at::Tensor dz = dfree / (b * z);
    const at::Tensor de = at::matmul(p.transpose(2, 3), dz);
    dp = dp + at::matmul(dz, e.transpose(2, 3));
    dv = dv + b * e * de;
    dbeta = (v * e * de).sum({0, 2}) - (dfree * z.log()).sum({0, 2}) / beta->square();
  }
  const at::Tensor ds = p * (dp - (p * dp).sum(-1, true)) * scale;
  return {heads_first(at::matmul(ds, heads_first(real_key))),
          heads_first(at::matmul(ds.transpose(2, 3), heads_first(query))), heads_first(dv), dbeta};
}

}  // namespace fem
