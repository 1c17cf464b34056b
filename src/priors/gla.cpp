// gla: p_t(i) ~ exp(sum_{tau=i+1..t} g_tau) phi(q_t).phi(k_i), gated linear attention with one decay a head.
#include <ATen/ATen.h>

#include "fem/ops/linear_read.h"
#include "priors/decay.h"
#include "priors/query_key.h"

namespace fem {
namespace {

class GlaPrior final : public Prior {
 public:
  size_t linear_layers(const MixerOptions&) const override { return 3; }

  std::vector<ParameterSpec> parameters(const MixerOptions& options, const MixerSizes& sizes) const override {
    std::vector<ParameterSpec> specs = declare_query_and_key(options, sizes);
    const std::vector<double> start = decay_biases(options.n_head, rules_of(options.dialect).spread_starts);
    declare_linear(specs, "W_decay", options.n_embd, start, options.bias);
    return specs;
  }

  std::vector<int64_t> leading_widths(const MixerOptions&, const MixerSizes& sizes) const override {
    return {sizes.key, sizes.key};
  }
  std::vector<int64_t> trailing_widths(const MixerOptions&, const MixerSizes& sizes) const override {
    return {sizes.value / sizes.head_value};
  }

  Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const override {
    return memory_of_linear_sums(options, sizes, values);
  }

  Read read(const PriorCall& call) const override {
    const auto [query, key] = query_and_key(call, call.options.eps);  // phi
    return call.keep_sums(linear_read(query, key, call.value, call.beta, log_decay(call), call.recurrent()));
  }

 private:
  // The authors' code declares the conditioner's slice but does not use it.
  static at::Tensor log_decay(const PriorCall& call) {
    const bool relu = call.rules().relu_decay;
    const Modulation modulation = relu ? Modulation() : call.modulations[2];
    const at::Tensor decay = by_head(call.projected[2], call.options.n_head, modulation).squeeze(-1);
    return relu ? -(at::relu(decay) + call.options.eps) : -at::softplus(decay);
  }
};

}  // namespace

const Prior& gla_prior() {
  static const GlaPrior prior;
  return prior;
}

}  // namespace fem
