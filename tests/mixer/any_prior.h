#pragma once

#include <rapidcheck.h>

#include "mixer/random_mixer.h"

namespace fem::testing {

// Any prior with any of the options that are its own.
inline void choose_prior(MixerOptions& options) {
  options.prior_type = *rc::gen::elementOf(all_priors());
  options.dialect = *rc::gen::element(Dialect::kCorrected, Dialect::kReference);
  if (options.prior_type == PriorType::kSoftmax) {
    options.softmax_backend =
        *rc::gen::element(SoftmaxBackend::kAuto, SoftmaxBackend::kReference, SoftmaxBackend::kSdpa);
    if (*rc::gen::arbitrary<bool>()) options.window = *rc::gen::inRange(1, 8);
  }
  if (options.prior_type == PriorType::kMamba) {
    options.ssm_rank = *rc::gen::inRange(1, 4);
    options.mamba_normalize = *rc::gen::arbitrary<bool>();
    options.mamba_interact = *rc::gen::arbitrary<bool>();
  }
  RC_TAG(spelled(options.prior_type));
}

}  // namespace fem::testing
