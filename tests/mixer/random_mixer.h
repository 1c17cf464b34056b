#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
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

template <typename Enum>
std::vector<Enum> all_of() {
  std::vector<Enum> all;
  for (const auto& [name, value] : Spelling<Enum>::values) all.push_back(value);
  return all;
}
inline std::vector<PriorType> all_priors() { return all_of<PriorType>(); }
inline std::vector<Dialect> all_dialects() { return all_of<Dialect>(); }

// A prior in a dialect, for tests that run once for each.
using PriorInDialect = std::tuple<PriorType, Dialect>;
inline auto every_prior_in_every_dialect() {
  return ::testing::Combine(::testing::ValuesIn(all_priors()), ::testing::ValuesIn(all_dialects()));
}
inline std::string name_of(const PriorInDialect& param) {
  return spelled(std::get<0>(param)) + "_" + spelled(std::get<1>(param));
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
