#include "priors/prior.h"
#include "util/check.h"

namespace fem {

const Prior& softmax_prior();
const Prior& linear_prior();
const Prior& gla_prior();
const Prior& rnn_softmax_prior();
const Prior& rnn_decay_prior();
const Prior& mamba_prior();

const Prior& prior_of(PriorType type) {
  constexpr std::pair<PriorType, const Prior& (*)()> kPriors[] = {
      {PriorType::kSoftmax, softmax_prior},
      {PriorType::kLinear, linear_prior},
      {PriorType::kGla, gla_prior},
      {PriorType::kRnnSoftmax, rnn_softmax_prior},
      {PriorType::kRnnDecay, rnn_decay_prior},
      {PriorType::kMamba, mamba_prior},
  };
  for (const auto& [known, prior] : kPriors)
    if (known == type) return prior();
  FEM_CHECK(false, "prior_of: expected one of the priors in fem/options.h, got number ", static_cast<int>(type));
}

}  // namespace fem
