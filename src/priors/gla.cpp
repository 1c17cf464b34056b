// gla: p_t(i) ~ exp(sum_{tau=i+1..t} g_tau) phi(q_t).phi(k_i), gated linear attention with one decay a head.
#include <ATen/ATen.h>

#include "fem/ops/linear_read.h"
#include "priors/chosen.h"
#include "priors/decay.h"
#include "priors/query_key.h"

namespace fem {
namespace {

class GlaPrior final : public Prior {
 public:
  std::vector<Part> parts(const MixerOptions& options, const MixerSizes& sizes) const override {
    std::vector<Part> parts = query_and_key_parts(options, sizes);
    parts.push_back(decay_part(options, options.n_head));
    return parts;
  }

  Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const override {
    return memory_of_linear_sums(options, sizes, values);
  }

  Read read(const PriorCall& call) const override {
    const auto [query, key] = query_and_key(call, call.options.eps);  // phi
    return call.keep_sums(linear_read(query, key, call.value, call.beta, log_decay(call), call.recurrent()));
  }

  at::Tensor log_weights(const PriorCall& call, const at::Tensor& chosen) const override {
    const at::Tensor products = chosen_products(query_and_key(call, call.options.eps), chosen);
    return (products.log() + passed(where_real(log_decay(call), call.batch), chosen)).unsqueeze(3);
  }

 private:
  // [B, T, H]. The authors' code, which takes the relu, declares the conditioner's slice but does not use it.
  static at::Tensor log_decay(const PriorCall& call) {
    if (!call.rules().relu_decay) return -at::softplus(call.by_head(kDecay).squeeze(-1));
    return -(at::relu(call.parts[kDecay].projected) + call.options.eps);
  }
};

}  // namespace

const Prior& gla_prior() {
  static const GlaPrior prior;
  return prior;
}

}  // namespace fem
