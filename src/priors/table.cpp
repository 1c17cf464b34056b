#include "priors/prior.h"
#include "util/check.h"

namespace fem {

const Prior& softmax_prior();

const Prior& prior_of(PriorType type) {
  switch (type) {
    case PriorType::kSoftmax:
      return softmax_prior();
  }
  FEM_CHECK(false, "prior_of: expected one of the priors in fem/options.h, got number ", static_cast<int>(type));
}

}  // namespace fem
