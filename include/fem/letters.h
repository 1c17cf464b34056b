// The letters of the paper's ablation (its Table 1) at equal parameters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fem/options.h"

namespace fem {

// C: conditioner. L: the log-sum-exp read at beta = 1. T: learned temperature, with the inner gate. G: outer gate.
// "" is the plain prior (softmax: attention), "CLTG" the full mixer.
inline constexpr std::array<std::string_view, 8> kLetters{"", "C", "CL", "CLT", "CLTG", "L", "LT", "LTG"};

struct LetterChoice {
  MixerOptions options;
  int64_t parameters;       // of the mixer with these options
  int64_t full_parameters;  // of the full one

  std::string words() const;  // what was chosen, in a sentence
};

// The options with the parts of these letters alone. Queries, keys and conditioner stay as wide as the full mixer's;
// the value width E becomes the multiple of 4 n_head with which the parameters are as many as the full mixer's, or
// nearest.
LetterChoice with_letters(const MixerOptions& options, std::string_view letters);

}  // namespace fem
