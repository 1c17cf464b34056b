#pragma once

#include <rapidcheck.h>

#include "mixer/random_mixer.h"

namespace fem::testing {

// Any of the options that are the prior's own.
inline void choose_prior_options(MixerOptions& options) {
  if (options.prior_type == PriorType::kSoftmax) {
    options.softmax_backend =
        *rc::gen::element(SoftmaxBackend::kAuto, SoftmaxBackend::kReference, SoftmaxBackend::kSdpa);
    options.use_alibi = *rc::gen::arbitrary<bool>();
    if (*rc::gen::arbitrary<bool>()) options.window = *rc::gen::inRange(1, 8);
  }
  if (options.prior_type == PriorType::kMamba) {
    options.ssm_rank = *rc::gen::inRange(1, 4);
    options.mamba_normalize = *rc::gen::arbitrary<bool>();
    options.mamba_interact = *rc::gen::arbitrary<bool>();
  }
}

// Any prior in any dialect.
inline void choose_prior(MixerOptions& options) {
  options.prior_type = *rc::gen::elementOf(all_priors());
  options.dialect = *rc::gen::elementOf(all_dialects());
  choose_prior_options(options);
  RC_TAG(spelled(options.prior_type) + " " + spelled(options.dialect));
}

}  // namespace fem::testing
