// rnn_softmax: p_t(i) ~ exp(k_i) for every channel, the attention-free transformer; q, if any, is a factor of what was
// read.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "fem/ops/channel_read.h"
#include "priors/chosen.h"
#include "priors/query_key.h"
#include "util/width.h"

namespace fem {
namespace {

// [B, T, H, K] -> [B, T, H, V]: channel c of a head has key c mod K.
at::Tensor repeated(const at::Tensor& x, int64_t head_value) {
  const int64_t width = width_of(x);
  return width == head_value ? x : x.repeat({1, 1, 1, head_value / width});
}

// sqrt(K) normalise(softplus(q) + eps)
at::Tensor positive_direction(const at::Tensor& query, double eps) {
  const at::Tensor raw = at::softplus(query) + eps;
  const at::Tensor norm = raw.norm(2, -1, /*keepdim=*/true).clamp_min(1e-5);
  return raw * (std::sqrt(static_cast<double>(width_of(query))) / norm);
}

class RnnSoftmaxPrior final : public Prior {
 public:
  // Even, for the rotation, and a divisor of the value width.
  int64_t head_key(const MixerOptions& options, int64_t budget, int64_t head_value) const override {
    if (!rules_of(options.dialect).aft_has_query) return head_value;
    int64_t width = std::min(budget, head_value) / 2 * 2;
    while (width > 2 && head_value % width != 0) width -= 2;
    return width;
  }

  std::vector<Part> parts(const MixerOptions& options, const MixerSizes& sizes) const override {
    if (!rules_of(options.dialect).aft_has_query) return {key_part(options, sizes)};
    return query_and_key_parts(options, sizes);
  }

  Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const override {
    return memory_of_channel_sums(options, sizes, values);
  }

  Read read(const PriorCall& call) const override {
    if (!call.rules().aft_has_query)
      return call.keep_sums(aft_read(call.by_head(kKey, rotation(call)), call.value, call.beta, call.recurrent()));
    const auto [query, key] = query_and_key(call);
    const at::Tensor gate = repeated(positive_direction(query, call.options.eps), call.sizes.head_value);
    const RecurrentRead read =
        call.keep_sums(aft_read(repeated(key, call.sizes.head_value), call.value, call.beta, call.recurrent()));
    if (!call.beta) return {gate * read.mean, {}};
    if (!call.rules().aft_query_inside_log) return {gate * read.mean, gate * read.free_energy};
    // The authors' code multiplies both mixed streams, inside the logarithm. Nothing visible stays 0.
    const at::Tensor seen = read.log_normalizer > -INFINITY;
    return {gate * read.mean, at::where(seen, read.free_energy + gate.log() / *call.beta, 0)};
  }

  at::Tensor log_weights(const PriorCall& call, const at::Tensor& chosen) const override {
    const at::Tensor key = repeated(call.by_head(kKey, rotation(call)), call.sizes.head_value);
    return as_tokens(key).expand({-1, chosen.size(0), -1, -1, -1});
  }
};

}  // namespace

const Prior& rnn_softmax_prior() {
  static const RnnSoftmaxPrior prior;
  return prior;
}

}  // namespace fem
