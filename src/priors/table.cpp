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
  switch (type) {
    case PriorType::kSoftmax:
      return softmax_prior();
    case PriorType::kLinear:
      return linear_prior();
    case PriorType::kGla:
      return gla_prior();
    case PriorType::kRnnSoftmax:
      return rnn_softmax_prior();
    case PriorType::kRnnDecay:
      return rnn_decay_prior();
    case PriorType::kMamba:
      return mamba_prior();
  }
  FEM_CHECK(false, "prior_of: expected one of the priors in fem/options.h, got number ", static_cast<int>(type));
}

}  // namespace fem
