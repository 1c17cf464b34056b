// linear: p_t(i) ~ phi(q_t).phi(k_i), linear attention.
#include <ATen/ATen.h>

#include "fem/ops/linear_read.h"
#include "priors/chosen.h"
#include "priors/query_key.h"

namespace fem {
namespace {

class LinearPrior final : public Prior {
 public:
  std::vector<Part> parts(const MixerOptions& options, const MixerSizes& sizes) const override {
    return query_and_key_parts(options, sizes);
  }

  Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const override {
    return memory_of_linear_sums(options, sizes, values);
  }

  Read read(const PriorCall& call) const override {
    const auto [query, key] = query_and_key(call, call.options.eps);  // phi
    return call.keep_sums(linear_read(query, key, call.value, call.beta, std::nullopt, call.recurrent()));
  }

  at::Tensor log_weights(const PriorCall& call, const at::Tensor& chosen) const override {
    return chosen_products(query_and_key(call, call.options.eps), chosen).log().unsqueeze(3);
  }
};

}  // namespace

const Prior& linear_prior() {
  static const LinearPrior prior;
  return prior;
}

}  // namespace fem
