#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "fem/mixer.h"

namespace fem::testing {

inline MixerOptions small_options() {
  MixerOptions options;
  options.n_embd = 16;
  options.n_head = 2;
  options.conv_hidden = 6;
  return options;
}

inline std::vector<PriorType> all_priors() {
  std::vector<PriorType> priors;
  for (const auto& [name, prior] : Spelling<PriorType>::values) priors.push_back(prior);
  return priors;
}

// Every parameter random: with its initial values the conditioner would be silent and all scores nearly equal.
inline FreeEnergyMixer random_mixer(const MixerOptions& options, at::ScalarType dtype = at::kDouble) {
  const at::NoGradGuard no_gradients;
  FreeEnergyMixer mixer(options);
  for (at::Tensor& parameter : mixer->parameters()) parameter.normal_(0.1, 0.5);
  mixer->to(dtype);
  return mixer;
}

inline at::Tensor random_tokens(int64_t batch, int64_t tokens, const MixerOptions& options,
                                at::ScalarType dtype = at::kDouble) {
  return at::randn({batch, tokens, options.n_embd}, dtype);
}

}  // namespace fem::testing
